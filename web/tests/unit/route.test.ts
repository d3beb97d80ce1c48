import { describe, expect, it } from "vitest";

import { hrefOf, parseRoute } from "../../src/route";

describe("route", () => {
  it("restores every value it was made of", () => {
    const params = { profile: `<img onerror=x>&=#?`, cost: "ALL_TO_ALL groupSize 16", empty: undefined, n: 3 };
    const route = parseRoute(hrefOf("curves", params));
    expect(route.view).toBe("curves");
    expect(route.params).toEqual({ profile: params.profile, cost: params.cost, n: "3" });
  });

  it("shows the first view for what it does not know", () => {
    expect(parseRoute("").view).toBe("clusters");
    expect(parseRoute("#/__proto__").view).toBe("clusters");
  });
});
