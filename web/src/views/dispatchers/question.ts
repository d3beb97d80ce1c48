// The form of this view, its place in the address, and what it asks the planner. Pure.
import type { CompareDispatchersRequest } from "../../../generated/moeplan/v1/planner_service";
import type { StepLayout } from "../../../generated/moeplan/v1/step";
import type { CallError } from "../../api/client";
import { isDispatcherAxis, usualValues, type DispatcherAxis } from "../../job/dispatcher_axis";
import { compact, indented } from "../../job/model";
import { exampleJob, hardwareOf, jobInputs, jobOf, jobParams, jobRequest, namesModel, type JobDraft } from "../../job/question";
import { refusedInput } from "../../job/refused";
import type { Params } from "../../route";
import { axisText, parseAxis, splitValues } from "../../sweep/axes";
import { parseObject } from "../../workload";

/** What the form holds, as it is typed. */
export interface Draft extends JobDraft {
  /** A layout as JSON. Empty: every degree 1. */
  layout: string;
  path: DispatcherAxis;
  values: string;
}

const exampleLayout = '{"expertParallel": 16, "recompute": "SELECTIVE", "recomputeModules": ["MOE_ACT"]}';

export function draftOf(params: Params): Draft {
  const job = jobOf(params);
  const isExample = !namesModel(params);
  // Along GPUs a suffix counts at one value alone, so the example has none.
  const machines = isExample && params["hardware"] === undefined && job.hardware !== "" ? hardwareOf(exampleJob.hardware) : {};
  const axis = parseAxis(params["axis"] ?? "");
  const path = isDispatcherAxis(axis.path) ? axis.path : "expertParallel";
  const values = axis.path === path ? axis.values : usualValues(path, Number(job.gpus));
  return { ...job, ...machines, layout: indented(params["layout"] ?? (isExample ? exampleLayout : "")), path, values: values.join(",") };
}

/** A draft with other GPUs or another axis: values that nobody typed go with them. */
export function withChanges(draft: Draft, changes: Partial<Draft>): Draft {
  const next = { ...draft, ...changes };
  const wereUsual = draft.values === usualValues(draft.path, Number(draft.gpus)).join(",");
  const isOther = next.path !== draft.path || (wereUsual && next.gpus !== draft.gpus);
  return isOther && changes.values === undefined ? { ...next, values: usualValues(next.path, Number(next.gpus)).join(",") } : next;
}

/** The address of a draft. */
export function paramsOf(draft: Draft): Record<string, string> {
  return { ...jobParams(draft), layout: compact(draft.layout), axis: axisText({ path: draft.path, values: splitValues(draft.values) }) };
}

/** The layout as requests have it; empty text: every degree 1. */
export function layoutOf(json: string): { layout: StepLayout | undefined } | { problem: string } {
  if (json.trim() === "") return { layout: undefined };
  const parsed = parseObject(json, "A layout");
  return "problem" in parsed ? parsed : { layout: parsed.value as unknown as StepLayout };
}

/** null: the address asks nothing, or nothing that could be asked. */
export function requestOf(params: Params): CompareDispatchersRequest | null {
  const job = jobRequest(params);
  const parsed = layoutOf(params["layout"] ?? "");
  const axis = params["axis"] ?? "";
  if (job === null || "problem" in parsed || axis === "") return null;
  return { ...job, layout: parsed.layout, axis, dispatchers: [] };
}

/** The values of a request's axis, as they are typed. */
export const valuesOf = ({ axis }: CompareDispatchersRequest): string => parseAxis(axis).values.join(",");

// Values of an axis that are wrong are refused by the axis' own name, which may also be the name of an input.
const inputs = { ...jobInputs, layout: "layout", axis: "values", microBatch: "values", expertParallel: "values", expertImbalance: "values" } as const;

/** The input that a refusal names. null: none of ours. */
export const fieldOf = (error: Pick<CallError, "field" | "message">): keyof Draft | null => refusedInput<keyof Draft>(error, inputs);
