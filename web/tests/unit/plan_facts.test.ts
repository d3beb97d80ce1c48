import { describe, expect, it } from "vitest";

import type { Plan, PlanResponse, Rules } from "../../generated/moeplan/v1/plan";
import type { GetRunResponse, SweepPoint } from "../../generated/moeplan/v1/planner_service";
import type { RankTimeline } from "../../generated/moeplan/v1/report";
import { entryFor, pieces } from "../../src/views/plan/costs";
import { atPoint, defaultValues, mostX, mostY, parseValues, xPath, yChoices } from "../../src/views/plan/map_axes";
import { isNearTie, marginOf, runnerUpWords } from "../../src/sweep/near_tie";
import { cellOf, speedupOf, winners } from "../../src/views/plan/map_cells";
import { differences, planOfRun, slowestFirst } from "../../src/views/plan/measured";
import { choicesOf, fasterBaseline, fileNameOf, partsOf } from "../../src/views/plan/plan_facts";
import { askedWorkload, countOf, questionOf } from "../../src/views/plan/question";
import { stopWords } from "../../src/views/plan/stop_reason";

const plan = (changes: Partial<Plan>): Plan => ({
  schedule: "PARM_S1", chunks: 1, partitionDegree: 1, allToAll: "DIRECT", dispatchCodec: "NONE", combineCodec: "NONE", overlappedGather: false,
  chunkShares: [], order: [], predictedTimeS: 1, lowS: 1, highS: 1, communicationTimeS: 0, exposedCommunicationS: 0, computeTimeS: 0, memoryBytes: 0,
  timeline: [], gradients: undefined, communicationCtas: 0, ...changes,
});
const point = (best: Plan | undefined, runnerUp?: Plan, baselineTimeS?: number, reason?: string, indistinctS = 0): SweepPoint => ({
  row: { fields: {}, best, predictedTimeS: best?.predictedTimeS, reason, extrapolated: undefined }, runnerUp, baselineTimeS, warnings: [], costs: [], indistinctS,
});

const costs = ["ALL_TO_ALL groupSize 8 ranksPerNode 4", "ALL_TO_ALL groupSize 8 ranksPerNode 4 algorithm PIPE", "EXPERT_GEMM", "EXPERT_GEMM modelDim 256 hiddenDim 32", "PERMUTE", "ENCODE_FP8", "ALL_TO_ALL_ALL_GATHER groupSize 8 ranksPerNode 4 gatherGroupSize 2 shards 2"];

describe("costs in texts", () => {
  it("are served by the entry with most of their conditions", () => {
    expect(entryFor("EXPERT_GEMM bytesPerElement 2 modelDim 256 hiddenDim 32", costs)).toBe("EXPERT_GEMM modelDim 256 hiddenDim 32");
    expect(entryFor("EXPERT_GEMM bytesPerElement 2 modelDim 512 hiddenDim 32", costs)).toBe("EXPERT_GEMM");
    expect(entryFor("ALL_TO_ALL groupSize 16 ranksPerNode 4", costs)).toBe("");
    expect(entryFor("GATE", costs)).toBe("");
  });

  it("become links, and the rest stays as it was", () => {
    const text = `1 × ALL_TO_ALL groupSize 8 ranksPerNode 4 = 0.02 ms; 2 × PERMUTE bytesPerElement 2 modelDim 256 = 1 ms; PARM_S1 <b>`;
    const cut = pieces(text, costs);
    expect(cut.map((piece) => piece.text).join("")).toBe(text);
    expect(cut.flatMap(({ cost }) => cost ?? [])).toEqual(["ALL_TO_ALL groupSize 8 ranksPerNode 4", "PERMUTE"]);
    expect(pieces("nothing", costs)).toEqual([{ text: "nothing" }]);
    expect(pieces("", costs)).toEqual([]);
  });
});

describe("axes of the map", () => {
  const workload = { layer: { sequenceLength: 1024, batch: 2, experts: 6, topK: 2 } };

  it("offer values around the workload's, as many as are drawn", () => {
    expect(defaultValues(workload, xPath)).toEqual([64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]);
    expect(defaultValues(workload, "layer.topK")).toEqual([1, 2, 3, 4, 6]);
    expect(defaultValues(workload, "layout.expertParallel")).toEqual([1, 2]);
    for (const { path } of yChoices) {
      const values = defaultValues(workload, path);
      expect(values.length).toBeGreaterThan(0);
      expect(values.length).toBeLessThanOrEqual(mostY);
      expect(parseValues(values.join(", "), mostX)).toEqual({ values });
    }
  });

  it("refuse what cannot be drawn", () => {
    expect(parseValues("1, 2, x", 9)).toEqual({ problem: "x is not a number" });
    expect(parseValues(" ", 9)).toHaveProperty("problem");
    expect(parseValues("1 2 3", 2)).toHaveProperty("problem");
    expect(parseValues("1,1", 2)).toHaveProperty("problem");
  });

  it("set what belongs to the workload at a point, and nothing else", () => {
    expect(atPoint(workload, { "layer.batch": 8, "cluster.nic.scale": 2 })).toEqual({ layer: { ...workload.layer, batch: 8 } });
  });
});

describe("points of the map", () => {
  const apart = point(plan({ predictedTimeS: 1, lowS: 0.95, highS: 1.05 }), plan({ schedule: "PIPELINE", predictedTimeS: 1.3, lowS: 1.2, highS: 1.4 }), 2);

  it("are near a tie where intervals meet or the margin is small, for those who want that", () => {
    const both = { share: 0.05, intervals: true };
    expect(marginOf(apart)).toBeCloseTo(0.3, 12);
    expect(speedupOf(apart)).toBe(2);
    expect(isNearTie(apart, both)).toBe(false);
    expect(isNearTie(apart, { share: 0.31, intervals: true })).toBe(true);
    const meeting = point(apart.row!.best, plan({ predictedTimeS: 1.3, lowS: 1.04, highS: 1.6 }));
    expect(isNearTie(meeting, both)).toBe(true);
    expect(isNearTie(meeting, { share: 0.05, intervals: false })).toBe(false);
    expect(isNearTie(meeting)).toBe(false);
    // Without a fit all ends are one: intervals that are none do not meet.
    const exact = point(plan({ predictedTimeS: 1, lowS: 1, highS: 1 }), plan({ predictedTimeS: 1.01, lowS: 1.01, highS: 1.01 }));
    expect(isNearTie(exact, { share: 0, intervals: true })).toBe(false);
    expect(isNearTie(point(plan({})), both)).toBe(false);
  });

  it("say of both signs how close the runner-up comes", () => {
    const close = (predictedTimeS: number): SweepPoint => point(plan({}), plan({ schedule: "PIPELINE", predictedTimeS }), undefined, undefined, 0.03125);
    // 1/32 is the planner's word for this point; at another it is another.
    expect([0.9375, 0.96875, 1, 1.03125, 1.0625].map((time) => isNearTie(close(time)))).toEqual([true, true, true, true, false]);
    expect(isNearTie({ ...close(1.02), indistinctS: 0.01 })).toBe(false);
    expect(isNearTie({ ...close(1.02), indistinctS: 0.01 }, { share: 0.03, intervals: false })).toBe(true);
    expect(runnerUpWords(close(0.992))).toBe("runner-up PIPELINE, 992 ms, 0.8 % faster by prediction, which measurements cannot tell apart");
    expect(runnerUpWords(close(1.02))).toBe("runner-up PIPELINE, 1.02 s, 2 % slower, a near tie");
    expect(runnerUpWords(close(1.04))).toBe("runner-up PIPELINE, 1.04 s, 4 % slower");
    expect(runnerUpWords(point(plan({})))).toBe("no runner-up of another family");
  });

  it("say all there is, and why there is nothing", () => {
    const band = { share: 0.05, intervals: true };
    expect(cellOf(apart, band)).toMatchObject({ class: "family-2", label: "S1", hatched: false });
    expect(cellOf(apart, band).says).toBe("PARM_S1, 1 s; runner-up PIPELINE, 1.3 s, 30 % slower; 2× as fast as the faster baseline");
    expect(cellOf(point(undefined, undefined, undefined, "needs 8 ranks"), band)).toEqual({ label: "–", missing: true, says: "no plan: needs 8 ranks" });
    expect(winners([apart, apart, point(plan({ schedule: "BASELINE" })), point(undefined)])).toEqual([{ family: "PARM_S1", count: 2 }, { family: "BASELINE", count: 1 }]);
  });
});

describe("an answer", () => {
  it("is split into compute, exposed communication and the rest", () => {
    const parts = partsOf(plan({ predictedTimeS: 10, computeTimeS: 6, exposedCommunicationS: 3, communicationTimeS: 8 }));
    expect(parts).toEqual({ computeS: 6, exposedS: 3, restS: 1 });
    expect(partsOf(plan({ predictedTimeS: 1, computeTimeS: 0.7, exposedCommunicationS: 0.3000001 })).restS).toBe(0);
  });

  it("names the faster baseline, though the simpler one of a tie comes first", () => {
    const tied = [plan({ schedule: "BASELINE", predictedTimeS: 2.01 }), plan({ schedule: "BASELINE_TP", predictedTimeS: 2 }), plan({})];
    expect(fasterBaseline(tied)?.schedule).toBe("BASELINE_TP");
    expect(fasterBaseline(tied.map((one) => ({ ...one, predictedTimeS: 2 })))?.schedule).toBe("BASELINE");
    expect(fasterBaseline([plan({})])).toBeUndefined();
  });

  it("tells what each rule would do", () => {
    const rules: Rules = {
      parm: { tBaselineS: 3, tS1S: 2, tS2S: 1, choice: "PARM_S2" },
      monta: { tBaselineS: 3, o1: { timeS: 5 }, o2: { chunks: 4, timeS: 4 }, o3: undefined, choice: "MONTA_O2" },
      schemoe: undefined,
      lancet: undefined,
    };
    expect(choicesOf(rules)).toEqual([
      { rule: "parm", choice: "PARM_S2", timeS: 1 },
      { rule: "monta", choice: "MONTA_O2 with 4 chunks", timeS: 4 },
    ]);
    expect(choicesOf(undefined)).toEqual([]);
  });

  it("is saved under a harmless name", () => {
    const named = (name: string): string => fileNameOf({ workload: { name } } as PlanResponse);
    expect(named(`../../<img onerror=x>&'"`)).toBe("plan-img-onerror-x.json");
    expect(named("")).toBe("plan-layer.json");
    expect(named("x".repeat(500)).length).toBeLessThan(80);
  });

  it("says why its search stopped", () => {
    expect(stopWords({ stopReason: "PROVED_BEST", timeFloorS: 0, evaluated: 43 })).toBe("proved best of 43 candidates priced");
    expect(stopWords({ stopReason: "OUT_OF_BUDGET", timeFloorS: 0, evaluated: 1 })).toContain("not proved");
  });
});

describe("a measured run", () => {
  const rank = (number: number, endS: number): RankTimeline => ({
    rank: number,
    timeline: endS === 0 ? [] : [{ task: "a", kind: "GATE", stream: "COMPUTE", chunk: 0, startS: 0, endS }],
  });

  it("puts the slowest rank first and leaves out those without tasks", () => {
    expect(slowestFirst([rank(0, 1), rank(1, 3), rank(2, 0), rank(3, 3)]).map((one) => one.rank)).toEqual([1, 3, 0]);
  });

  it("ran what was answered with the same choices, whole; where there is none, what is known of it", () => {
    const kept = (name: string, changes: Partial<Plan>): Plan => plan({ ...changes, order: [name], timeline: rank(0, 1).timeline });
    const candidates = [kept("first", { schedule: "MONTA_O2", chunks: 2 }), kept("second", { schedule: "MONTA_O2", chunks: 4 })];
    const ran = (one: Plan | undefined, answer: Partial<PlanResponse> | undefined): GetRunResponse =>
      ({ run: { plan: one }, plan: answer === undefined ? undefined : { candidates: [], ...answer }, ranks: [] }) as unknown as GetRunResponse;
    expect(planOfRun(ran(plan({ schedule: "MONTA_O2", chunks: 4 }), { best: candidates[0]!, candidates }))).toBe(candidates[1]);
    // A job reports its best plan alone.
    expect(planOfRun(ran(plan({ schedule: "MONTA_O2", chunks: 2 }), { best: candidates[0]! }))).toBe(candidates[0]);
    const unknown = plan({ schedule: "MONTA_O2", chunks: 9 });
    expect(planOfRun(ran(unknown, { best: candidates[0]!, candidates }))).toBe(unknown);
    expect(planOfRun(ran(unknown, undefined))).toBe(unknown);
    expect(planOfRun(ran(undefined, { candidates }))).toBeUndefined();
  });

  it("is of the workload that is typed where defaults are all that it leaves out", () => {
    const typed = { layer: { batch: 1, sequenceLength: 512, modelDim: 256, hiddenDim: 512, experts: 8, topK: 2, capacityFactor: 1.25 }, layout: { expertParallel: 4 } };
    const ran = {
      name: "", layer: { ...typed.layer, bytesPerElement: 2, expertMatrices: 2, gate: "TOP_K", expertBias: false },
      layout: { tensorParallel: 1, expertParallel: 4, expertShardingParallel: 1, contextParallel: 1, pipelineParallel: 1, dataParallel: 8 },
      minChunkBytes: 1048576, maxChunks: 64, maxPartitionDegree: 8, dispatchCodec: "NONE", phase: "FORWARD", gradientBytes: 0,
    };
    expect(differences(ran, ran)).toEqual([]);
    expect(differences(typed, ran)).toEqual([]);
    expect(differences({ ...typed, layout: {} }, ran)).toEqual(["Expert (EP)"]);
    // What is left out is the default, not what ran.
    expect(differences(typed, { ...ran, maxChunks: 4, phase: "TRAINING" })).toEqual(["Phase", "Most chunks N"]);
    expect(differences({ ...typed, layout: { expertParallel: 4, dataParallel: 4 }, name: "other" }, ran)).toEqual(["Data (DP)", "Name"]);
  });
});

describe("the address", () => {
  it("says what to ask", () => {
    expect(questionOf({})).toEqual({ profileName: "", extrapolate: false });
    expect(questionOf({ profile: "west", version: "2", extrapolate: "1" })).toEqual({ profileName: "west", profileVersion: 2, extrapolate: true });
    expect(questionOf({ version: "-1" })).toEqual({ profileName: "", extrapolate: false });
    expect(askedWorkload({})).toEqual({ workload: null, problem: "" });
    expect(askedWorkload({ workload: "{" }).problem).not.toBe("");
    expect(askedWorkload({ workload: '{"name":"x"}' }).workload).toEqual({ name: "x" });
    expect([countOf("0"), countOf("3"), countOf("-1"), countOf("x"), countOf(undefined), countOf("")]).toEqual([0, 3, null, null, null, null]);
  });
});
