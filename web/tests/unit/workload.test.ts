import { describe, expect, it } from "vitest";

import { isWorkloadPath, parseObject, parseWorkload } from "../../src/workload";

describe("a typed workload", () => {
  it("is a JSON object, and what else stands there is said", () => {
    expect(parseWorkload('{"name":"x"}')).toEqual({ workload: { name: "x" } });
    for (const text of ["{", "[1]", "null", "7", ""]) expect(parseWorkload(text)).toHaveProperty("problem");
    expect(parseWorkload("[]")).toEqual({ problem: "A workload is a JSON object." });
    expect(parseObject("[]", "A config.json")).toEqual({ problem: "A config.json is a JSON object." });
  });

  it("holds the fields that are not the profile's", () => {
    const paths = ["layer.batch", "routing.skew", "clusterSize", "cluster.nic.scale", "collectives[ALL_TO_ALL].timeScale", "kernels[GATE].timeScale"];
    expect(paths.map(isWorkloadPath)).toEqual([true, true, true, false, false, false]);
  });
});
