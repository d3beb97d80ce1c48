import { describe, expect, it } from "vitest";

import type { Advice, ComparedLayout } from "../../generated/moeplan/v1/advice";
import type { AdviseResponse } from "../../generated/moeplan/v1/planner_service";
import type { StepLayout, StepResult } from "../../generated/moeplan/v1/step";
import { usualValues } from "../../src/job/dispatcher_axis";
import { gpusOf, hardwareOf, hardwareText, jobOf, withDomains } from "../../src/job/question";
import { parseRoute } from "../../src/route";
import { environmentText, flagLines, flagsText } from "../../src/views/job/flags";
import { dispatchersHref, layoutsHref, layoutText } from "../../src/views/job/links";
import { comparedOf, memoryBars, memoryParts, memoryWords, stepBars, stepParts } from "../../src/views/job/parts";
import { draftOf, fieldOf, paramsOf, requestOf } from "../../src/views/job/question";
import { expectedWords, gainWords, ratioWords, runnerUpWords, stepWords } from "../../src/views/job/words";

/** As the address leads back: what is empty is left out. */
const addressOf = (params: Record<string, string>): Record<string, string> => Object.fromEntries(Object.entries(params).filter(([, value]) => value !== ""));

describe("a job in the address", () => {
  it("asks nothing while no model is named, and begins with an example", () => {
    expect(requestOf({})).toBeNull();
    expect(requestOf({ gpus: "8", hardware: "b200" })).toBeNull();
    expect(draftOf({})).toMatchObject({ modelName: "qwen3-30b-a3b", hardware: "h100-sxm", domains: "8x8", gpus: "64", globalBatch: "512", sequenceLength: "4096", to: "megatron" });
    expect(draftOf({ hardware: "b200:1x8" })).toMatchObject({ modelName: "qwen3-30b-a3b", hardware: "b200", domains: "1x8" });
    expect(draftOf({ profile: "west" })).toMatchObject({ hardware: "", domains: "", profile: "west" });
  });

  it("comes back as it was typed, and the example is asked as it stands", () => {
    const draft = { ...draftOf({}), mine: "--a 1 \\\n--b 2", measuredStepS: "2.5", precision: "FP8" };
    const params = addressOf(paramsOf(draft));
    expect(draftOf(params)).toEqual(draft);
    expect(requestOf(params)).toEqual({
      model: undefined, modelName: "qwen3-30b-a3b", profileName: "", hardware: "h100-sxm:8x8", gpus: 64, globalBatch: 512, sequenceLength: 4096,
      precision: "FP8", mine: "--a 1 \\\n--b 2", measuredStepS: 2.5, to: "megatron", targetVersion: "", against: undefined, liveOnly: false,
    });
  });

  it("leaves out what was not said, so that the planner's defaults count", () => {
    const request = requestOf(addressOf(paramsOf({ ...draftOf({}), gpus: "", mine: " \n ", liveOnly: true })))!;
    expect(request.gpus).toBe(0);
    expect(request.mine).toBe("");
    expect(request.liveOnly).toBe(false);
    expect("precision" in request || "measuredStepS" in request || "profileVersion" in request).toBe(false);
  });

  it("may ask for what needs no restart alone", () => {
    expect(requestOf(addressOf(paramsOf({ ...draftOf({}), mine: "--a 1", liveOnly: true })))!.liveOnly).toBe(true);
  });

  it("is of a pasted model where none is named, and of a version of a profile", () => {
    const params = addressOf(paramsOf({ ...draftOf({}), modelName: "", model: '{ "hidden_size": 8 }', profile: "west", version: "3" }));
    expect(params["model"]).toBe('{"hidden_size":8}');
    expect(requestOf(params)).toMatchObject({ model: { hidden_size: 8 }, modelName: "", profileName: "west", profileVersion: 3 });
    expect(requestOf({ ...params, model: "[1]" })).toBeNull();
    expect(requestOf({ ...params, version: "x" })).toBeNull();
    // Whatever is pasted beside a name does not count.
    expect(paramsOf({ ...draftOf(params), modelName: "mixtral-8x7b" })["model"]).toBe("");
  });

  it("is wrong where a refusal says", () => {
    expect(fieldOf({ field: "hardware", message: "" })).toBe("hardware");
    expect(fieldOf({ field: "mine.expertParallel", message: "" })).toBe("mine");
    expect(fieldOf({ field: "", message: "mine: --micro-batch-size: found x" })).toBe("mine");
    expect(fieldOf({ field: "hidden_size", message: "model: hidden_size: found nothing" })).toBe("model");
    expect(fieldOf({ field: "profileName", message: "no such profile" })).toBeNull();
  });
});

describe("hardware", () => {
  it("has a name and perhaps a suffix", () => {
    expect(hardwareOf("h100-sxm:8x8")).toEqual({ hardware: "h100-sxm", domains: "8x8" });
    expect(hardwareOf("h100-sxm")).toEqual({ hardware: "h100-sxm", domains: "" });
    expect(hardwareText({ hardware: "h100-sxm", domains: " 8x8 " })).toBe("h100-sxm:8x8");
    expect(hardwareText({ hardware: "", domains: "8x8" })).toBe("");
  });

  it("takes GPUs with its suffix while they were the suffix' own", () => {
    expect([gpusOf("8x8"), gpusOf("1x72"), gpusOf("8"), gpusOf("0x8"), gpusOf("")]).toEqual([64, 72, null, null, null]);
    const job = jobOf({});
    expect(withDomains(job, "4x8")).toEqual({ domains: "4x8", gpus: "32" });
    // Half typed.
    expect(withDomains(job, "4x")).toEqual({ domains: "4x" });
    expect(withDomains({ ...job, gpus: "16" }, "4x8")).toEqual({ domains: "4x8" });
  });
});

const step = (changes: Partial<StepResult> = {}): StepResult => ({
  stepTimeS: 2.31, lowS: 2.03, highS: 2.68, tokensPerS: 907_520, tokensPerSPerGpu: 14_180, mfu: 0.4, memoryBytes: 2 ** 30 * 6,
  memory: { weights: 2 ** 30, gradients: 2 ** 31, optimizer: 0, activations: 3 * 2 ** 30, buffers: 0, logits: 0, other: 0 },
  parts: [{ part: "attention", forwardS: 1, backwardS: 1, exposedS: 0.31 }, { part: "moeLayers", forwardS: 1, backwardS: 1, exposedS: 2 }, { part: "contextExchange", forwardS: 1, backwardS: 0, exposedS: 0 }],
  costs: [], warnings: [], extrapolated: false, missingBytes: 0, moeSchedule: "BASELINE", moePieces: 1, overlap: "", lancet: undefined, ...changes,
});
const compared = (text: string, gain: number, gainLow: number, gainHigh: number, of: StepResult | undefined = step()): ComparedLayout => ({ layout: undefined, step: of, gain, gainLow, gainHigh, text });
const gained = (mine: ComparedLayout, changes: Partial<Advice> = {}): string =>
  gainWords({ mine, mineIsUsual: false, mineIsSame: false, gain: mine.gain, gainLow: mine.gainLow, gainHigh: mine.gainHigh, ...changes });

describe("the answer in words", () => {
  it("says the step, with what is known of it", () => {
    expect(stepWords(step())).toBe("2.31 s (90 %: 2.03 s to 2.68 s), 14,180 tokens/s for each GPU, MFU 40 %");
    expect(stepWords(step({ mfu: 0, lowS: 2.31, highS: 2.31 }))).toBe("2.31 s, 14,180 tokens/s for each GPU");
  });

  it("says what to expect where a step was measured", () => {
    expect(expectedWords({ expectedStepTimeS: 2.31 })).toBe("");
    expect(expectedWords({ softwareFactor: 1.2, expectedStepTimeS: 2.772 })).toBe("Your measured step takes 1.20 times what is predicted of it; that is your software, so expect 2.77 s.");
  });

  it("says what is gained over yours or over what is usual", () => {
    const mine = compared("TP 1, EP 8", 1.26, 1.1, 1.44);
    expect(gained(mine)).toBe("Yours takes 1.26 times as long (90 %: 1.10 to 1.44): TP 1, EP 8.");
    expect(gained(mine, { mineIsUsual: true })).toMatch(/^The usual default takes 1.26 times/);
    expect(gained(compared("TP 1", 1.03, 0.97, 1.1))).toContain("The interval does not tell them apart.");
    expect(gained(compared("TP 1", 1.2, 1.1, 1.3, step({ missingBytes: 2 ** 30 })))).toBe("Yours takes 1.20 times as long (90 %: 1.10 to 1.30): TP 1. It does not fit: a GPU lacks 1 GiB.");
    expect(gained(mine, { mineIsSame: true })).toMatch(/^Yours is the answer/);
    expect(gained(mine, { mineIsSame: true, mineIsUsual: true })).toBe("The usual default is the answer.");
    expect(gainWords({ mine: undefined, mineIsUsual: false, mineIsSame: false, gain: 0, gainLow: 0, gainHigh: 0 })).toBe("");
  });

  it("says of what is as fast that it is less plain", () => {
    expect(runnerUpWords({ runnerUp: compared("TP 1", 0.995, 0.95, 1.05) })).toBe(
      "The next best that decides something otherwise is as fast within 1 %, but less plain: it takes 0.99 times as long (90 %: 0.95 to 1.05): TP 1.",
    );
    expect(runnerUpWords({ runnerUp: compared("TP 1", 0.9, 0.8, 0.95) })).toContain("takes 0.90 times as long");
    expect(runnerUpWords({ runnerUp: undefined })).toBe("");
    expect(ratioWords({ gain: 2, gainLow: 2, gainHigh: 2 })).toBe("2.00 times as long");
  });
});

describe("what memory and step consist of", () => {
  const advice = {
    step: step(), mine: compared("mine", 1.2, 1, 1.3, step({ stepTimeS: 3, parts: [{ part: "novelty", forwardS: 0, backwardS: 0, exposedS: 1 }, { part: "attention", forwardS: 1, backwardS: 1, exposedS: 2 }] })),
    mineIsUsual: true, mineIsSame: false, runnerUp: compared("next", 1.1, 1, 1.2),
  };

  it("is shown of the answer, of what it is compared with and of the next best, where they have a step", () => {
    expect(comparedOf(advice).map(({ name }) => name)).toEqual(["the answer", "the usual default", "the next best"]);
    expect(comparedOf({ ...advice, mineIsSame: true, runnerUp: { ...compared("", 1, 1, 1), step: undefined } }).map(({ name }) => name)).toEqual(["the answer"]);
    expect(comparedOf({ ...advice, mineIsUsual: false }).map(({ name }) => name)[1]).toBe("yours");
  });

  it("has the parts that some of them have, each with its name in words", () => {
    const all = comparedOf(advice);
    expect(memoryParts(all).map(({ name, values }) => [name, values[0]! / 2 ** 30])).toEqual([["weights", 1], ["gradients", 2], ["activations kept for the backward pass", 3]]);
    // What is hidden behind something else lengthens no step; a part that is new here keeps its own name.
    expect(stepParts(all).map(({ name, values }) => [name, values])).toEqual([["attention", [0.31, 2, 0.31]], ["MoE layers", [2, 0, 2]], ["novelty", [0, 1, 0]]]);
  });

  it("fills the bars, whose sums are the whole", () => {
    const all = comparedOf(advice);
    const [answer, usual] = stepBars(all, stepParts(all));
    expect(answer!.value).toBeCloseTo(2.31, 12);
    expect(answer!.valueText).toBe("2.31 s");
    expect(usual!.parts!.map(({ value }) => value)).toEqual([2, 0, 1]);
    expect(memoryBars(all, memoryParts(all), 2 ** 33)[0]).toMatchObject({ label: "the answer", value: 6 * 2 ** 30, valueText: "6 GiB, 2 GiB free" });
    expect(memoryWords(2 ** 30, 0)).toBe("1 GiB");
    expect(memoryWords(3 * 2 ** 30, 2 ** 30)).toBe("3 GiB, 2 GiB too much");
  });
});

describe("settings to copy", () => {
  it("are a line for each flag, with its values", () => {
    expect(flagLines(["--tensor-model-parallel-size", "1", "--swiglu", "--moe-layer-freq", "[1, 0]", "--lr", "-1"])).toEqual([
      "--tensor-model-parallel-size 1", "--swiglu", "--moe-layer-freq '[1, 0]'", "--lr -1",
    ]);
    expect(flagsText(["--a", "1", "--b"])).toBe("--a 1 \\\n--b");
    expect(flagsText([])).toBe("");
  });

  it("are a line for each override where a system has no flags", () => {
    expect(flagLines(["model.tensor_model_parallel_size=2", "model.stages=[1,2]"])).toEqual(["model.tensor_model_parallel_size=2", "model.stages='[1,2]'"]);
  });

  it("come with their environment", () => {
    expect(environmentText({ CUDA_DEVICE_MAX_CONNECTIONS: "32", NAME: "a b" })).toBe("export CUDA_DEVICE_MAX_CONNECTIONS=32\nexport NAME='a b'");
    expect(environmentText(undefined)).toBe("");
  });
});

describe("from an answer to other views", () => {
  const layout = {
    tensorParallel: 1, expertParallel: 16, pipelineParallel: 1, dataParallel: 64, microBatch: 2, stages: [], recompute: "SELECTIVE", recomputeModules: ["MOE_ACT"],
    sequenceParallel: true, dispatcher: "HYBRID_EP", transport: "NCCL", schedule: "BASELINE", plan: {}, overlapExpertParallel: true, overlapSharedExperts: true, zeroStage: 1,
  } as unknown as StepLayout;
  const answer = { profileName: "west", profileVersion: 2, deviceMemoryBytes: 0, result: { layout, plan: {}, gpus: 16 } } as unknown as AdviseResponse;
  const params = addressOf(paramsOf({ ...draftOf({}), gpus: "", hardware: "b200", domains: "" }));

  it("a layout keeps what is not usual, without its dispatcher", () => {
    expect(JSON.parse(layoutText(layout))).toEqual({ expertParallel: 16, microBatch: 2, recompute: "SELECTIVE", recomputeModules: ["MOE_ACT"], overlapExpertParallel: true, overlapSharedExperts: true });
    expect(JSON.parse(layoutText({ ...layout, tensorParallel: 2, sequenceParallel: false, overlapExpertParallel: false, recompute: "NONE", recomputeModules: [] }))).toEqual({
      tensorParallel: 2, expertParallel: 16, microBatch: 2, sequenceParallel: false,
    });
  });

  it("dispatchers are compared for the same job, at the GPUs and the version that were answered", () => {
    const { view, params: to } = parseRoute(dispatchersHref(params, answer)!);
    expect(view).toBe("dispatchers");
    expect(to).toMatchObject({ modelName: "qwen3-30b-a3b", hardware: "b200", profile: "west", version: "2", gpus: "16", globalBatch: "512", axis: "expertParallel=4,8,16" });
    expect(dispatchersHref(params, { ...answer, result: { ...answer.result!, plan: undefined } })).toBeNull();
  });

  it("layouts are ranked of the same job, with the profile where there is one", () => {
    const { view, params: to } = parseRoute(layoutsHref(params, answer));
    expect(view).toBe("layouts");
    expect(to).toEqual({ modelName: "qwen3-30b-a3b", hardware: "b200", profile: "west", version: "2", gpus: "16", globalBatch: "512", sequenceLength: "4096" });
    const { params: ofHardware } = parseRoute(layoutsHref(params, { ...answer, profileVersion: 0 }));
    expect(ofHardware).toMatchObject({ hardware: "b200", gpus: "16" });
    expect(ofHardware).not.toHaveProperty("version");
  });

  it("an axis begins with values that the GPUs can hold", () => {
    expect(usualValues("expertParallel", 64)).toEqual(["4", "8", "16", "32", "64"]);
    expect(usualValues("expertParallel", 4)).toEqual(["1", "2", "4"]);
    expect(usualValues("gpus", 8)).toEqual(["8", "16", "32"]);
    expect(usualValues("microBatch", 1)).toEqual(["1", "2", "4", "8"]);
  });
});
