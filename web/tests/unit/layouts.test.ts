import { describe, expect, it } from "vitest";

import type { RankedLayout } from "../../generated/moeplan/v1/report";
import type { Workload } from "../../generated/moeplan/v1/workload";
import { parseModel } from "../../src/job/model";
import { batchAxis, degreesText, layerOf, nodesAxis, rowText } from "../../src/views/layouts/links";
import { chosenOf, memoryParts } from "../../src/views/layouts/memory";
import { draftOf, fieldOf, paramsOf, requestOf } from "../../src/views/layouts/request";

const layout = { tensorParallel: 8, expertParallel: 4, expertShardingParallel: 1, contextParallel: 2, pipelineParallel: 1, dataParallel: 16 };
const ranked = { layout, microBatch: 2 } as RankedLayout;

describe("a request for layouts", () => {
  const model = { hidden_size: 4096, model_type: "a&b" };
  const pasted = { ...draftOf({}), modelName: "", model: JSON.stringify(model), hardware: "", profile: "west" };

  it("is in the address, and comes back", () => {
    const request = requestOf(paramsOf({ ...pasted, gpus: "128", recompute: "FULL" }));
    expect(request).toEqual({ model, modelName: "", hardware: "", profileName: "west", gpus: 128, globalBatch: 512, sequenceLength: 4096, zeroStage: 1, recompute: "FULL", attention: "FLASH", lancet: false, top: 20 });
    expect(JSON.parse(draftOf(paramsOf(pasted)).model)).toEqual(model);
  });

  it("asks for Lancet's passes where the address does", () => {
    expect(requestOf(paramsOf({ ...pasted, lancet: "1" }))?.lancet).toBe(true);
    expect(requestOf(paramsOf(pasted))?.lancet).toBe(false);
  });

  it("is of a model by its name where the address has one, whatever else is pasted", () => {
    const request = requestOf(paramsOf({ ...pasted, modelName: "mixtral-8x7b", model: "{" }));
    expect(request).toMatchObject({ model: undefined, modelName: "mixtral-8x7b", gpus: 64 });
  });

  it("is the same however its model is spaced", () => {
    expect(paramsOf({ ...pasted, model: '{ "a": 1 }' })).toEqual(paramsOf({ ...pasted, model: '{"a":1}' }));
    expect(paramsOf({ ...pasted, model: '{"a":2}' })).not.toEqual(paramsOf({ ...pasted, model: '{"a":1}' }));
  });

  it("is of hardware by its name, and of the network that joins it", () => {
    const example = paramsOf({ ...draftOf({}), network: '{ "oversubscription": 2 }' });
    expect(requestOf(example)).toMatchObject({ modelName: "qwen3-30b-a3b", hardware: "h100-sxm:8x8", network: { oversubscription: 2 }, profileName: "", gpus: 64 });
    expect(requestOf({ ...example, network: "{" })).toBeNull();
    // Without hardware there is nothing that it could join.
    expect(paramsOf({ ...pasted, network: '{"oversubscription":2}' })["network"]).toBe("");
  });

  it("is none without a model", () => {
    expect(requestOf({})).toBeNull();
    expect(requestOf({ model: "{" })).toBeNull();
  });

  it("has a version where the address names one", () => {
    expect(requestOf({ model: "{}", version: "3" })?.profileVersion).toBe(3);
    expect(["1x", "0", "-1", "1.5"].map((version) => requestOf({ model: "{}", version }))).toEqual([null, null, null, null]);
  });

  it("takes objects alone for models", () => {
    expect(parseModel("")).toEqual({ problem: "Paste the model's config.json here" });
    expect(parseModel("[]")).toHaveProperty("problem");
    expect(parseModel("{]")).toHaveProperty("problem");
    expect(parseModel("{}")).toEqual({ model: {} });
  });

  it("is wrong where a refusal says", () => {
    expect(fieldOf({ field: "gpus", message: "gpus: found 0, expected a whole number" })).toBe("gpus");
    expect(fieldOf({ field: "hidden_size or d_model", message: "model: hidden_size or d_model: found nothing" })).toBe("model");
    expect(fieldOf({ field: "profileName", message: "" })).toBe("profile");
    expect(fieldOf({ field: "toString", message: "" })).toBeNull();
    expect(fieldOf({ field: "", message: "holds no profile named 'x'" })).toBeNull();
  });
});

describe("the memory of a layout", () => {
  it("comes in parts, in the order of the bars", () => {
    const memory = { stateBytes: 8, keptBytes: 4, runningBytes: 2, logitBytes: 1, otherBytes: 3 };
    expect(memoryParts({ memory }).map(({ bytes }) => bytes)).toEqual([8, 4, 2, 1, 3]);
  });

  it("is shown of the layout that the address names", () => {
    const rows = [{ rank: 1 }, { rank: 2 }];
    expect(chosenOf(rows, "2")).toBe(rows[1]);
    expect([undefined, "3", "02", "x"].map((param) => chosenOf(rows, param))).toEqual([null, null, null, null]);
  });
});

describe("the layer of a layout", () => {
  const imported = { name: "m", layer: { batch: 1, sequenceLength: 32768, experts: 8 }, layout: undefined, phase: "FORWARD" } as Workload;

  it("has the layout's micro-batch and degrees, forward and backward", () => {
    const request = { ...requestOf({ model: "{}", sequenceLength: "4096", zeroStage: "3", recompute: "FULL" })! };
    const workload = layerOf(imported, ranked, request, 4);
    expect(workload.layer).toEqual({ batch: 2, sequenceLength: 4096, experts: 8 });
    expect(workload.layout).toEqual(layout);
    expect(workload).toMatchObject({ phase: "TRAINING", zeroStage: 3, recompute: "FULL", maxChunks: 4, maxPartitionDegree: 4 });
    expect(imported.layer?.batch).toBe(1);
  });

  it("is priced over as many nodes as the GPUs fill", () => {
    const cluster = { nodes: 2, gpusPerNode: 8, peakFlopsPerS: 0, deviceMemoryBytes: 0, nodeLinkBytesPerS: 0, networkBytesPerS: 0 };
    expect(nodesAxis(64, cluster)).toBe("cluster.nodes=8");
    expect(nodesAxis(16, cluster)).toBeNull();
    expect(nodesAxis(12, cluster)).toBeNull();
    expect(nodesAxis(64, undefined)).toBeNull();
  });

  it("is looked at around its micro-batch", () => {
    expect(batchAxis(1)).toBe("layer.batch=1,2,4");
    expect(batchAxis(4)).toBe("layer.batch=2,4,8,16");
  });

  it("is named as the command does", () => {
    expect(degreesText(layout)).toBe("TP 8, EP 4, ESP 1, CP 2, PP 1, DP 16");
  });

  it("is told from the one with its contexts the other way", () => {
    expect(rowText({ layout, horizontalContexts: false })).toBe("TP 8, EP 4, ESP 1, CP 2, PP 1, DP 16");
    expect(rowText({ layout, horizontalContexts: true })).toBe("TP 8, EP 4, ESP 1, CP 2, PP 1, DP 16, horizontal");
  });
});
