// The form of this view, its place in the address, and what it asks the planner. Pure.
import type { RankLayoutsRequest } from "../../../generated/moeplan/v1/planner_service";
import type { AttentionKernel_Kind } from "../../../generated/moeplan/v1/step";
import type { Recompute_Kind } from "../../../generated/moeplan/v1/workload";
import type { CallError } from "../../api/client";
import type { Params } from "../../route";
import { versionOf } from "../../version";
import { parseObject } from "../../workload";

/** What the form holds, as it is typed. */
export interface Draft {
  model: string;
  profile: string;
  version: string;
  gpus: string;
  globalBatch: string;
  sequenceLength: string;
  zeroStage: string;
  recompute: string;
  top: string;
}

const defaults = { gpus: "64", globalBatch: "256", sequenceLength: "4096", zeroStage: "1", recompute: "NONE", top: "20" };

export function draftOf(params: Params): Draft {
  const model = params["model"] ?? "";
  return {
    model: indented(model),
    profile: params["profile"] ?? "",
    version: params["version"] ?? "",
    gpus: params["gpus"] ?? defaults.gpus,
    globalBatch: params["globalBatch"] ?? defaults.globalBatch,
    sequenceLength: params["sequenceLength"] ?? defaults.sequenceLength,
    zeroStage: params["zeroStage"] ?? defaults.zeroStage,
    recompute: params["recompute"] ?? defaults.recompute,
    top: params["top"] ?? defaults.top,
  };
}

/** Whether two drafts ask the same, however their models are spaced. */
export function sameDraft(one: Draft, other: Draft): boolean {
  const plain = (draft: Draft): string => JSON.stringify({ ...draft, model: indented(draft.model) }, Object.keys(one).sort());
  return plain(one) === plain(other);
}

/** What is no JSON stays as it is. */
function indented(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

export type ParsedModel = { model: Record<string, unknown> } | { problem: string };

/** A config.json is an object; what stands in it is the planner's to judge. */
export function parseModel(json: string): ParsedModel {
  if (json.trim() === "") return { problem: "Paste the model's config.json here" };
  const parsed = parseObject(json, "A config.json");
  return "problem" in parsed ? parsed : { model: parsed.value };
}

/** The address of a draft whose model is sound. */
export function paramsOf(draft: Draft, model: Record<string, unknown>): Record<string, string> {
  return { ...draft, model: JSON.stringify(model) };
}

/** null: the address asks nothing, or nothing that could be asked. */
export function requestOf(params: Params): RankLayoutsRequest | null {
  const parsed = parseModel(params["model"] ?? "");
  if ("problem" in parsed) return null;
  const draft = draftOf(params);
  const version = versionOf(draft.version);
  if (version === null) return null;
  return {
    model: parsed.model,
    profileName: draft.profile,
    ...(version === undefined ? {} : { profileVersion: version }),
    gpus: Number(draft.gpus),
    globalBatch: Number(draft.globalBatch),
    sequenceLength: Number(draft.sequenceLength),
    zeroStage: Number(draft.zeroStage),
    recompute: draft.recompute as Recompute_Kind,
    attention: "FLASH" as AttentionKernel_Kind,
    settings: undefined,
    top: Number(draft.top),
  };
}

const fields: Readonly<Record<string, keyof Draft>> = {
  model: "model",
  profileName: "profile",
  profileVersion: "version",
  gpus: "gpus",
  globalBatch: "globalBatch",
  sequenceLength: "sequenceLength",
  zeroStage: "zeroStage",
  recompute: "recompute",
  top: "top",
};

/** The input that a refusal names. What is wrong inside of a model is named as config.json has it, after "model:". null: none of ours. */
export function fieldOf({ field, message }: Pick<CallError, "field" | "message">): keyof Draft | null {
  for (const text of [field, message]) {
    const first = text.split(/[.[:]/)[0]!;
    if (Object.hasOwn(fields, first)) return fields[first]!;
  }
  return null;
}
