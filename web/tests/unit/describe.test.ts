import { describe, expect, it } from "vitest";

import type { Plan } from "../../generated/moeplan/v1/plan";
import { describePlan, ratioOf } from "../../src/describe";

const plain = {
  schedule: "PARM_S1",
  chunks: 1,
  partitionDegree: 1,
  allToAll: "DIRECT",
  dispatchCodec: "NONE",
  combineCodec: "NONE",
  overlappedGather: false,
  chunkShares: [] as number[],
  communicationCtas: 0,
} as Plan;

describe("a plan in words", () => {
  it("says only what is not the default", () => {
    expect(describePlan(plain)).toBe("PARM_S1");
    expect(describePlan({ ...plain, partitionDegree: 2 })).toBe("PARM_S1 in 2 partitions");
  });

  it("says everything that is not, in the command's order", () => {
    const plan: Plan = {
      ...plain,
      schedule: "MONTA_O3",
      allToAll: "PIPE",
      communicationCtas: 8,
      chunks: 3,
      chunkShares: [0.125, 0.75, 0.125],
      overlappedGather: true,
      dispatchCodec: "FP8",
      combineCodec: "BF16",
    };
    expect(describePlan(plan)).toBe("MONTA_O3 with PIPE with 8 CTAs with 3 chunks of sizes 1:6:1 with the overlapped gather, FP8 there, BF16 back");
  });

  it("writes shares of six digits as units", () => {
    expect(ratioOf([0.333333, 0.666667])).toBe("1:2");
    expect(ratioOf([0.25, 0.5, 0.25])).toBe("1:2:1");
  });
});
