import { describe, expect, it } from "vitest";

import type { Plan } from "../../generated/moeplan/v1/plan";
import type { SweepPoint } from "../../generated/moeplan/v1/planner_service";
import { positionsOf } from "../../src/charts/positions";
import { axisOf, axisText, countOf, parseAxis, pointAt, slices, valuesAt, type Axis } from "../../src/sweep/axes";
import { csvRecord, sweepCsv } from "../../src/views/sweep/csv";
import { bestCell, familiesOf, shadeOf, timeCell, timeRange } from "../../src/views/sweep/grid";
import { askedOf, draftOf, paramsOf, questionOf } from "../../src/views/sweep/question";
import { fieldAt, withField, workloadAt } from "../../src/views/sweep/workload_text";

const plan = (schedule: string, predictedTimeS: number, lowS = predictedTimeS, highS = predictedTimeS): Plan => ({
  schedule,
  chunks: 1,
  partitionDegree: 1,
  allToAll: "DIRECT",
  dispatchCodec: "NONE",
  combineCodec: "NONE",
  overlappedGather: false,
  chunkShares: [],
  order: [],
  predictedTimeS,
  lowS,
  highS,
  communicationTimeS: 0,
  exposedCommunicationS: 0,
  computeTimeS: 0,
  memoryBytes: 1024,
  timeline: [],
  gradients: undefined,
  communicationCtas: 0,
}) as Plan;

const point = (fields: Record<string, unknown>, best: Plan | undefined, more: Partial<SweepPoint> = {}): SweepPoint => ({
  row: { fields, best, ...(best === undefined ? { reason: "too large" } : { predictedTimeS: best.predictedTimeS }) },
  runnerUp: undefined,
  warnings: [], costs: [],
  indistinctS: 0,
  ...more,
});

describe("axes", () => {
  it("are split at commas and written again as they were", () => {
    const axis = parseAxis("collectives[ALL_TO_ALL].timeScale=0.5,1, 2");
    expect(axis).toEqual({ path: "collectives[ALL_TO_ALL].timeScale", values: ["0.5", "1", "2"] });
    expect(axisText(axis)).toBe("collectives[ALL_TO_ALL].timeScale=0.5,1,2");
    expect(axisText(parseAxis("layer.batch="))).toBe("layer.batch=");
  });

  const axes: Axis[] = [
    { path: "a", values: ["1", "2", "3"] },
    { path: "b", values: ["x"] },
    { path: "c", values: ["1", "2", "3", "4", "5"] },
  ];

  it("are cut into sweeps whose points follow one another as those of the whole", () => {
    const all = (grid: readonly Axis[]): string[] =>
      Array.from({ length: countOf(grid) }, (_, index) => valuesAt(grid, index).map((value, axis) => grid[axis]!.values[value]).join(" "));
    for (const most of [1, 2, 4, 5, 7, 10, 14, 15, 100]) {
      const parts = slices(axes, most);
      expect(parts.flatMap(all)).toEqual(all(axes));
      expect(Math.max(...parts.map(countOf))).toBeLessThanOrEqual(most);
    }
    expect(slices(axes, 100)).toHaveLength(1);
    // Ten points at most are two rows of five: rows 1 and 2, then row 3.
    expect(slices(axes, 10).map(countOf)).toEqual([10, 5]);
  });

  it("find a point by its values and back", () => {
    expect(pointAt(axes, [2, 0, 3])).toBe(13);
    expect(valuesAt(axes, 13)).toEqual([2, 0, 3]);
  });
});

describe("the question in the address", () => {
  const draft = {
    workload: '{ "name": "a&b=#", "layer": {"batch": 1} }',
    axes: [{ path: "", values: "" }, { path: " layer.batch ", values: "1, 2" }, { path: "", values: "" }],
    profile: "west",
    version: "",
    extrapolate: true,
  };

  it("leaves unused axes out, so that a refusal's number is that of the form", () => {
    const params = paramsOf(draft);
    expect(params["axis1"]).toBe("layer.batch=1,2");
    expect(params["axis2"]).toBeUndefined();
    expect(params["workload"]).toBe('{"name":"a&b=#","layer":{"batch":1}}');
    expect(axisOf("axes[1]")).toBe(1);
    expect(axisOf("workload.layer.batch")).toBeNull();
  });

  it("comes back as it was", () => {
    const params = JSON.parse(JSON.stringify(paramsOf(draft))) as Record<string, string>;
    const back = draftOf(params, "");
    expect(back.axes).toEqual([{ path: "layer.batch", values: "1,2" }, { path: "", values: "" }, { path: "", values: "" }]);
    expect(back.extrapolate).toBe(true);
    expect(questionOf(params)?.request).toEqual({
      workload: { name: "a&b=#", layer: { batch: 1 } },
      profileName: "west",
      axes: ["layer.batch=1,2"],
      extrapolate: true,
    });
  });

  it("is the same however its answer is shown", () => {
    const params = paramsOf(draft);
    expect(askedOf({ ...params, x: "1", y: "0", at: "2", sort: "time" })).toBe(askedOf(params));
    expect(askedOf({ ...params, axis2: "layer.topK=1" })).not.toBe(askedOf(params));
    expect(askedOf({ ...params, extrapolate: undefined })).not.toBe(askedOf(params));
  });

  it("is none without a workload or an axis", () => {
    expect(questionOf({ axis1: "a=1" })).toBeNull();
    expect(questionOf({ workload: "{}" })).toBeNull();
    expect(questionOf({ workload: "[1]", axis1: "a=1" })).toBeNull();
    expect(questionOf({ workload: "{}", axis1: "a=1", version: "3" })?.request.profileVersion).toBe(3);
  });
});

describe("a workload", () => {
  const workload = { layer: { batch: 1, topK: 2 }, routing: { tokensPerExpert: [1, 2, 3] } };

  it("is changed at a path, and nowhere else", () => {
    expect(withField(workload, "layer.batch", 4)).toEqual({ ...workload, layer: { batch: 4, topK: 2 } });
    expect(withField(workload, "routing.tokensPerExpert[1]", 9)).toEqual({ ...workload, routing: { tokensPerExpert: [1, 9, 3] } });
    expect(withField({}, "layout.expertParallel", 2)).toEqual({ layout: { expertParallel: 2 } });
    expect(workload.layer.batch).toBe(1);
  });

  it("is read at a path", () => {
    expect(fieldAt(workload, "routing.tokensPerExpert[2]")).toBe(3);
    expect(fieldAt(workload, "layout.tensorParallel")).toBeUndefined();
    expect(fieldAt(workload, "toString.name")).toBeUndefined();
  });

  it("takes names as names", () => {
    const changed = withField({}, "__proto__.batch", 1);
    expect(Object.keys(changed)).toEqual(["__proto__"]);
    expect(({} as Record<string, unknown>)["batch"]).toBeUndefined();
  });

  it("takes of a point what is its own", () => {
    const fields = { "layer.batch": 8, phase: "TRAINING", "cluster.nic.scale": 2, "collectives[ALL_TO_ALL].timeScale": 0.5 };
    const at = workloadAt(workload, fields);
    expect(at.workload).toEqual({ ...workload, layer: { batch: 8, topK: 2 }, phase: "TRAINING" });
    expect(at.left).toEqual(["cluster.nic.scale", "collectives[ALL_TO_ALL].timeScale"]);
  });
});

describe("maps", () => {
  const near = point({}, plan("PARM_S1", 1, 0.9, 1.1), { runnerUp: plan("MONTA_O3", 0.98, 0.9, 1.3), baselineTimeS: 2, indistinctS: 0.025 });
  const clear = point({}, plan("PIPELINE", 4, 3.9, 4.1), { runnerUp: plan("PARM_S1", 5, 4, 6) });
  const none = point({}, undefined);

  it("hatch near ties, which intervals that meet alone are not", () => {
    expect(bestCell(clear)).toMatchObject({ hatched: false });
    expect(bestCell(near)).toMatchObject({ class: "family-2", label: "S1", hatched: true });
    expect(bestCell(near).says).toContain("2 % faster by prediction, which measurements cannot tell apart; 2× as fast as the baseline");
  });

  it("say why there is no plan", () => {
    expect(bestCell(none)).toMatchObject({ missing: true, says: "no plan: too large" });
    expect(timeCell(none, { low: 1, high: 2 }).missing).toBe(true);
  });

  it("shade by factors", () => {
    const range = timeRange([near, clear, none])!;
    expect(range).toEqual({ low: 1, high: 4 });
    expect([1, 2, 4].map((time) => shadeOf(time, range))).toEqual([0, 0.5, 1]);
    expect(shadeOf(3, { low: 3, high: 3 })).toBe(0);
    expect(timeRange([none])).toBeNull();
  });

  it("count families", () => {
    expect(familiesOf([near, clear, clear, none])).toEqual([{ family: "PIPELINE", points: 2 }, { family: "PARM_S1", points: 1 }]);
  });

  it("place values by number where all have one", () => {
    expect(positionsOf(["1", "2", "16"])).toEqual({ at: [1, 2, 16], kind: "log2", numeric: true });
    expect(positionsOf(["0", "16"]).kind).toBe("linear");
    expect(positionsOf(["FORWARD", "2"])).toEqual({ at: [0, 1], kind: "linear", numeric: false });
    expect(positionsOf([""]).numeric).toBe(false);
  });
});

describe("comma-separated values", () => {
  it("quote what must be quoted, and change nothing of what looks like a formula", () => {
    expect(csvRecord(["a,b", 'say "x"', "line\nend", "=1+1", "@x", "-2", ""])).toBe('"a,b","say ""x""","line\nend",=1+1,@x,-2,\r\n');
  });

  it("have the columns of the command, then those of the page", () => {
    const points = [
      point({ "layer.batch": 2 }, { ...plan("PARM_S1", 0.5, 0.25, 0.75), chunkShares: [0.25, 0.75] }, { baselineTimeS: 1, runnerUp: plan("PIPELINE", 0.625) }),
      point({ "layer.batch": 4 }, undefined),
    ];
    const [header, first, second, end] = sweepCsv(["layer.batch"], points, true).split("\r\n");
    expect(header).toBe(
      "layer.batch,schedule,chunks,partitionDegree,allToAll,dispatchCodec,combineCodec,overlappedGather,chunkShares,predictedTimeS,lowS,highS," +
        "communicationTimeS,exposedCommunicationS,computeTimeS,memoryBytes,communicationCtas,reason,extrapolated,baselineTimeS,runnerUpSchedule,runnerUpTimeS",
    );
    expect(first).toBe("2,PARM_S1,1,1,DIRECT,NONE,NONE,false,0.25;0.75,0.5,0.25,0.75,0,0,0,1024,0,,false,1,PIPELINE,0.625");
    expect(second).toBe(`4${",".repeat(17)}too large,false,,,`);
    expect(end).toBe("");
    expect(sweepCsv(["layer.batch"], points, false)).not.toContain("extrapolated");
  });
});
