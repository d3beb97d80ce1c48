import { describe, expect, it } from "vitest";

import type { DispatcherCrossover, DispatcherFlip, DispatcherPoint } from "../../generated/moeplan/v1/advice";
import type { Dispatcher_Kind } from "../../generated/moeplan/v1/profile";
import { doubles } from "../../src/charts/positions";
import { unbroken } from "../../src/charts/series";
import { draftOf, fieldOf, layoutOf, paramsOf, requestOf, withChanges } from "../../src/views/dispatchers/question";
import { crossoverWords, dispatcherName, flipWords, pointWords, ratioText, reasonWords } from "../../src/views/dispatchers/words";

/** As the address leads back: what is empty is left out. */
const addressOf = (params: Record<string, string>): Record<string, string> => Object.fromEntries(Object.entries(params).filter(([, value]) => value !== ""));

describe("a comparison in the address", () => {
  it("asks nothing at first, and holds an example", () => {
    expect(requestOf({})).toBeNull();
    expect(draftOf({})).toMatchObject({ modelName: "qwen3-30b-a3b", hardware: "h100-sxm", domains: "", gpus: "64", path: "expertParallel", values: "4,8,16,32,64" });
    expect(JSON.parse(draftOf({}).layout)).toEqual({ expertParallel: 16, recompute: "SELECTIVE", recomputeModules: ["MOE_ACT"] });
  });

  it("comes back as it was typed, and is asked with all dispatchers", () => {
    const draft = withChanges(draftOf({}), { path: "microBatch" });
    const params = addressOf(paramsOf(draft));
    expect(params["axis"]).toBe("microBatch=1,2,4,8");
    expect(draftOf(params)).toEqual(draft);
    expect(requestOf(params)).toEqual({
      model: undefined, modelName: "qwen3-30b-a3b", profileName: "", hardware: "h100-sxm", gpus: 64, globalBatch: 512, sequenceLength: 4096,
      layout: { expertParallel: 16, recompute: "SELECTIVE", recomputeModules: ["MOE_ACT"] }, axis: "microBatch=1,2,4,8", dispatchers: [],
    });
  });

  it("is none without an axis or with a layout that is no object; an empty layout is one", () => {
    const params = addressOf(paramsOf(draftOf({})));
    expect(requestOf({ ...params, axis: "" })).toBeNull();
    expect(requestOf({ ...params, layout: "[" })).toBeNull();
    expect(requestOf({ ...params, layout: "" })).toMatchObject({ layout: undefined });
    expect(draftOf({ ...params, layout: "" }).layout).toBe("");
    expect(layoutOf("[]")).toHaveProperty("problem");
  });

  it("has values for each axis, which go with the GPUs until somebody types others", () => {
    const along = withChanges(draftOf({}), { path: "gpus" });
    expect(along.values).toBe("64,128,256");
    expect(withChanges(along, { gpus: "8" }).values).toBe("8,16,32");
    const typed = withChanges(along, { values: "64,512" });
    expect(withChanges(typed, { gpus: "8" }).values).toBe("64,512");
    expect(withChanges(typed, { path: "expertImbalance" }).values).toBe("1,1.2,1.5,2,3");
    expect(withChanges(typed, { layout: "{}" })).toEqual({ ...typed, layout: "{}" });
  });

  it("is wrong where a refusal says", () => {
    expect(fieldOf({ field: "layout.microBatch", message: "" })).toBe("layout");
    expect(fieldOf({ field: "axis", message: "" })).toBe("values");
    expect(fieldOf({ field: "", message: "microBatch: found 0, expected rising whole numbers from 1" })).toBe("values");
    expect(fieldOf({ field: "globalBatch", message: "" })).toBe("globalBatch");
    expect(fieldOf({ field: "", message: "the model has no experts, so nothing is dispatched" })).toBeNull();
  });
});

const steps = (times: Partial<Record<Dispatcher_Kind, number | string>>): DispatcherPoint["steps"] =>
  Object.entries(times).map(([dispatcher, time]) => ({
    dispatcher: dispatcher as Dispatcher_Kind, ...(typeof time === "number" ? { stepTimeS: time } : {}), reason: typeof time === "string" ? time : "",
  }));
const point = (value: number, best: Dispatcher_Kind | undefined, decided: boolean): DispatcherPoint => ({
  value, steps: steps(best === undefined ? { DEEPEP: "too large", ALL_TO_ALL: "too large" } : { DEEPEP: 1, ALL_TO_ALL: 1.05 }),
  ...(best === undefined ? {} : { best, runnerUp: "ALL_TO_ALL" as const }), ratio: 1.05, low: decided ? 1.01 : 0.99, high: 1.1, decided,
});
const flip: DispatcherFlip = { from: "ALL_TO_ALL", to: "DEEPEP", before: 8, after: 16 };
const crossover = (points: DispatcherPoint[], flips: DispatcherFlip[] = []): DispatcherCrossover => ({ path: "expertParallel", points, flips });

describe("where the fastest changes", () => {
  it("is said with where the interval is sure of it", () => {
    const between = "Between 8 and 16 ranks of experts the fastest changes from all-to-all to DeepEP. ";
    expect(flipWords({ ...flip, surelyBefore: 4, surelyAfter: 32 }, "expertParallel")).toBe(`${between}The 90 % interval is sure of all-to-all up to 4 and of DeepEP from 32 on.`);
    expect(flipWords({ ...flip, surelyAfter: 32 }, "expertParallel")).toBe(`${between}The 90 % interval is sure of DeepEP from 32 on.`);
    expect(flipWords(flip, "expertParallel")).toBe(`${between}At no value does the 90 % interval tell the two apart.`);
    expect(flipWords(flip, "microBatch")).toMatch(/^Between micro-batches of 8 and 16 the fastest/);
    expect(flipWords({ ...flip, before: 1.2, after: 1.5 }, "expertImbalance")).toMatch(/^Between expert imbalance 1.2 and 1.5 the fastest/);
    expect(crossoverWords(crossover([], [flip, flip]))).toHaveLength(2);
  });

  it("is nowhere where one is the fastest at all values", () => {
    expect(crossoverWords(crossover([point(4, "DEEPEP", true), point(8, "DEEPEP", true)]))).toEqual(["DeepEP is the fastest at every value. The 90 % interval tells it apart from the next one at all of them."]);
    expect(crossoverWords(crossover([point(4, "DEEPEP", false), point(8, "DEEPEP", true)]))[0]).toContain("apart from the next one at 1 of 2.");
    expect(crossoverWords(crossover([point(4, "DEEPEP", false), point(8, undefined, false)]))).toEqual([
      "DeepEP is the fastest at every value that has a price, 1 of 2. At none of them does the 90 % interval tell it apart from the next one.",
    ]);
    expect(crossoverWords(crossover([point(4, undefined, false)]))).toEqual(["No dispatcher has a price at any value."]);
    expect(crossoverWords(crossover([point(4, "DEEPEP", true), point(8, undefined, false), point(16, "ALL_TO_ALL", true)]))[0]).toContain("across values at which none has a price");
  });

  it("comes with each value's times, or why there is none", () => {
    expect(pointWords(point(4, "DEEPEP", false))).toBe("DeepEP 1 s, all-to-all 1.05 s; all-to-all takes 1.050 (0.99 to 1.10) times as long as DeepEP, which the interval does not tell apart");
    expect(pointWords(point(4, undefined, false))).toBe("no price: too large");
    expect(reasonWords({ steps: steps({ DEEPEP: "no path", ALL_TO_ALL: 1 }) })).toBe("DeepEP: no path");
    expect(reasonWords({ steps: steps({ DEEPEP: "a", ALL_TO_ALL: "b" }) })).toBe("DeepEP: a; all-to-all: b");
    expect(reasonWords({ steps: steps({ ALL_TO_ALL: 1 }) })).toBe("");
    expect(ratioText({ ratio: 1, low: 1, high: 1 })).toBe("");
    expect(dispatcherName("toString")).toBe("toString");
  });
});

describe("a line", () => {
  it("has even steps where its values double", () => {
    expect([[1, 2, 4, 8], [64, 128], [1, 2, 3], [8], []].map(doubles)).toEqual([true, true, false, false, false]);
  });

  it("ends where a value lacks", () => {
    const at = (y: number, x: number) => ({ x, y });
    expect(unbroken([1, 2, Number.NaN, 4, Number.NaN].map(at)).map((run) => run.map(({ x }) => x))).toEqual([[0, 1], [3]]);
    expect(unbroken([Number.NaN].map(at))).toEqual([]);
  });
});
