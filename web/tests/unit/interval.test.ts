import { describe, expect, it } from "vitest";

import { hasInterval } from "../../src/interval";

describe("the interval of a plan", () => {
  it("is there where it has a width", () => {
    expect(hasInterval({ lowS: 1, highS: 2 })).toBe(true);
    expect(hasInterval({ lowS: 0, highS: 1e-9 })).toBe(true);
  });

  it("is none where both ends are one", () => {
    expect(hasInterval({ lowS: 1, highS: 1 })).toBe(false);
    expect(hasInterval({ lowS: 0, highS: 0 })).toBe(false);
  });
});
