import { describe, expect, it } from "vitest";

import { hrefOf, parseRoute } from "../../src/route";
import { versionOf } from "../../src/version";

describe("route", () => {
  it("restores every value it was made of", () => {
    const params = { profile: `<img onerror=x>&=#?`, cost: "ALL_TO_ALL groupSize 16", empty: undefined, n: 3 };
    const route = parseRoute(hrefOf("curves", params));
    expect(route.view).toBe("curves");
    expect(route.params).toEqual({ profile: params.profile, cost: params.cost, n: "3" });
  });

  it("shows the first view for what it does not know", () => {
    expect(parseRoute("").view).toBe("job");
    expect(parseRoute("#/__proto__").view).toBe("job");
  });
});

describe("a version of the address", () => {
  it("is a whole number from 1, or the newest where there is none", () => {
    expect([undefined, "", "1", "30"].map(versionOf)).toEqual([undefined, undefined, 1, 30]);
  });

  it.each(["1x", "x", "0", "-1", "1.5", "1e3", " 1", "NaN", "01"])("is not %j", (param) => {
    expect(versionOf(param)).toBeNull();
  });
});
