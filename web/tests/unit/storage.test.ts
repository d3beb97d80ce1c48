import { describe, expect, it } from "vitest";

import { keptIn } from "../../src/storage";

function mapped(): Storage {
  const items = new Map<string, string>();
  return {
    getItem: (key: string) => items.get(key) ?? null,
    setItem: (key: string, value: string) => void items.set(key, value),
    removeItem: (key: string) => void items.delete(key),
  } as Storage;
}

const throwing = (): Storage => {
  throw new DOMException("blocked", "SecurityError");
};

describe("what is kept", () => {
  it.each([["storage", mapped()], ["memory where storage is blocked", null]])("is in %s", (_, storage) => {
    const kept = keptIn(storage === null ? throwing : () => storage);
    expect(kept.get("key")).toBeNull();
    kept.set("key", "value");
    expect(kept.get("key")).toBe("value");
    expect(kept.get("other")).toBeNull();
    kept.set("key", null);
    expect(kept.get("key")).toBeNull();
  });

  it("is the newer one where storage is full", () => {
    const full = { ...mapped(), getItem: () => "old", setItem: () => { throw new DOMException("full", "QuotaExceededError"); } } as Storage;
    const kept = keptIn(() => full);
    kept.set("key", "new");
    expect(kept.get("key")).toBe("new");
  });
});
