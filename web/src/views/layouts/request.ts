// The form of this view, its place in the address, and what it asks the planner. Pure.
import type { RankLayoutsRequest } from "../../../generated/moeplan/v1/planner_service";
import type { AttentionKernel_Kind } from "../../../generated/moeplan/v1/step";
import type { Recompute_Kind } from "../../../generated/moeplan/v1/workload";
import type { CallError } from "../../api/client";
import { indented, parseModel } from "../../job/model";
import { refusedInput } from "../../job/refused";
import type { Params } from "../../route";
import { versionOf } from "../../version";

/** What the form holds, as it is typed. */
export interface Draft {
  /** Empty: `model` counts. */
  modelName: string;
  model: string;
  profile: string;
  version: string;
  gpus: string;
  globalBatch: string;
  sequenceLength: string;
  zeroStage: string;
  recompute: string;
  /** "" or "1". */
  lancet: string;
  top: string;
}

const defaults = { gpus: "64", globalBatch: "256", sequenceLength: "4096", zeroStage: "1", recompute: "NONE", lancet: "", top: "20" };

export function draftOf(params: Params): Draft {
  return {
    modelName: params["modelName"] ?? "",
    model: indented(params["model"] ?? ""),
    profile: params["profile"] ?? "",
    version: params["version"] ?? "",
    gpus: params["gpus"] ?? defaults.gpus,
    globalBatch: params["globalBatch"] ?? defaults.globalBatch,
    sequenceLength: params["sequenceLength"] ?? defaults.sequenceLength,
    zeroStage: params["zeroStage"] ?? defaults.zeroStage,
    recompute: params["recompute"] ?? defaults.recompute,
    lancet: params["lancet"] ?? defaults.lancet,
    top: params["top"] ?? defaults.top,
  };
}

/** Whether two drafts ask the same, however their models are spaced. */
export function sameDraft(one: Draft, other: Draft): boolean {
  const plain = (draft: Draft): string => JSON.stringify({ ...draft, model: indented(draft.model) }, Object.keys(one).sort());
  return plain(one) === plain(other);
}

/** The address of a draft whose model is sound; undefined: it is named. */
export function paramsOf(draft: Draft, model: Record<string, unknown> | undefined): Record<string, string> {
  return { ...draft, model: model === undefined ? "" : JSON.stringify(model) };
}

/** The model of a draft; undefined: it is named. */
export function modelOf({ modelName, model }: Pick<Draft, "modelName" | "model">): { model: Record<string, unknown> | undefined } | { problem: string } {
  return modelName === "" ? parseModel(model) : { model: undefined };
}

/** null: the address asks nothing, or nothing that could be asked. */
export function requestOf(params: Params): RankLayoutsRequest | null {
  const draft = draftOf(params);
  const parsed = modelOf(draft);
  if ("problem" in parsed) return null;
  const version = versionOf(draft.version);
  if (version === null) return null;
  return {
    model: parsed.model,
    modelName: draft.modelName,
    hardware: "",
    network: undefined,
    profileName: draft.profile,
    ...(version === undefined ? {} : { profileVersion: version }),
    gpus: Number(draft.gpus),
    globalBatch: Number(draft.globalBatch),
    sequenceLength: Number(draft.sequenceLength),
    zeroStage: Number(draft.zeroStage),
    recompute: draft.recompute as Recompute_Kind,
    attention: "FLASH" as AttentionKernel_Kind,
    settings: undefined,
    lancet: draft.lancet === "1",
    top: Number(draft.top),
  };
}

const fields: Readonly<Record<string, keyof Draft>> = {
  model: "model",
  modelName: "modelName",
  profileName: "profile",
  profileVersion: "version",
  gpus: "gpus",
  globalBatch: "globalBatch",
  sequenceLength: "sequenceLength",
  zeroStage: "zeroStage",
  recompute: "recompute",
  lancet: "lancet",
  top: "top",
};

/** The input that a refusal names. null: none of ours. */
export const fieldOf = (error: Pick<CallError, "field" | "message">): keyof Draft | null => refusedInput(error, fields);
