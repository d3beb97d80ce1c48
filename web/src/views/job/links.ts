// From an answer to the other views that look at the same job. Pure.
import type { AdviseResponse } from "../../../generated/moeplan/v1/planner_service";
import type { StepLayout } from "../../../generated/moeplan/v1/step";
import { axisOf } from "../../job/dispatcher_axis";
import { jobOf, jobParams } from "../../job/question";
import { hrefOf, type Params } from "../../route";

/** What a step does by itself, so that a layout need not say it. */
const defaults: Partial<Record<keyof StepLayout, unknown>> = {
  tensorParallel: 1, expertParallel: 1, expertShardingParallel: 1, contextParallel: 1, pipelineParallel: 1, microBatch: 1, virtualStages: 1,
  recompute: "NONE", zeroStage: 1, attention: "FLASH", contextExchange: "KEYS_VALUES", overlapExpertParallel: false,
  delayWeightGradients: false, precision: "BF16", capacityFactor: 0, overlapGradients: true, recomputeLayers: 0, recomputeChunk: 1,
  overlapTensorParallel: false, mtpLayers: 0, expertImbalance: 0, gradientPrecision: "FP32",
};

/** What a comparison of dispatchers chooses by itself, or counts by the GPUs. */
const left: ReadonlySet<string> = new Set(["dispatcher", "transport", "schedule", "plan", "dataParallel"]);

/** The layout as short JSON to compare dispatchers with. */
export function layoutText(layout: StepLayout): string {
  const splits = (layout.tensorParallel ?? 1) > 1;
  const usual = {
    ...defaults,
    // Without tensor parallelism there is nothing to split.
    sequenceParallel: splits || layout.sequenceParallel,
    overlapSharedExperts: !layout.overlapExpertParallel,
  };
  const said = Object.entries(layout).filter(([field, value]) =>
    !left.has(field) && !(Array.isArray(value) && value.length === 0) && value !== usual[field as keyof StepLayout]);
  return JSON.stringify(Object.fromEntries(said));
}

/** The job as it was answered: with the profile's version and the GPUs that the planner found. */
function answeredJob(params: Params, { profileName, profileVersion, result }: AdviseResponse): Record<string, string> {
  const job = { ...jobParams(jobOf(params)), gpus: String(result?.gpus ?? "") };
  return profileVersion > 0 ? { ...job, profile: profileName, version: String(profileVersion) } : job;
}

/** To the dispatchers of the advised layout, over its ranks of experts; null: no layout was advised, or none with experts. */
export function dispatchersHref(params: Params, answer: AdviseResponse): string | null {
  const { layout, plan, gpus } = answer.result ?? {};
  if (layout === undefined || plan === undefined) return null;
  return hrefOf("dispatchers", { ...answeredJob(params, answer), layout: layoutText(layout), axis: axisOf("expertParallel", gpus ?? 0) });
}

/** To all layouts of the same model over the same GPUs. */
export const layoutsHref = (params: Params, answer: AdviseResponse): string => hrefOf("layouts", answeredJob(params, answer));
