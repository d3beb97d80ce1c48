import { describe, expect, it } from "vitest";

import { sorted } from "../../src/components/sorting";

describe("rows of a table", () => {
  const rows = [{ id: "a", n: 10 }, { id: "b", n: 9 }, { id: "c", n: undefined }, { id: "d", n: 10 }, { id: "e", n: Number.NaN }];

  it("come by number, equal ones as they were, those without one last both ways", () => {
    expect(sorted(rows, ({ n }) => n, false).map(({ id }) => id).join("")).toBe("badce");
    expect(sorted(rows, ({ n }) => n, true).map(({ id }) => id).join("")).toBe("adbce");
  });

  it("come by text with numbers inside as numbers", () => {
    expect(sorted(["v10", "v9"], (text) => text, false)).toEqual(["v9", "v10"]);
  });

  it("stay as they are in the list that was given", () => {
    const given = [2, 1];
    sorted(given, (n) => n, false);
    expect(given).toEqual([2, 1]);
  });
});
