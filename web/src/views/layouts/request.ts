// The form of this view, its place in the address, and what it asks the planner. Pure.
import type { RankLayoutsRequest } from "../../../generated/moeplan/v1/planner_service";
import type { AttentionKernel_Kind } from "../../../generated/moeplan/v1/step";
import type { Recompute_Kind } from "../../../generated/moeplan/v1/workload";
import type { CallError } from "../../api/client";
import { jobInputs, jobOf, jobParams, jobRequest, type JobDraft } from "../../job/question";
import { refusedInput } from "../../job/refused";
import type { Params } from "../../route";

/** What the form holds, as it is typed. */
export interface Draft extends JobDraft {
  zeroStage: string;
  recompute: string;
  /** "" or "1". */
  lancet: string;
  top: string;
}

const defaults = { zeroStage: "1", recompute: "NONE", lancet: "", top: "20" };

export function draftOf(params: Params): Draft {
  return {
    ...jobOf(params),
    zeroStage: params["zeroStage"] ?? defaults.zeroStage,
    recompute: params["recompute"] ?? defaults.recompute,
    lancet: params["lancet"] ?? defaults.lancet,
    top: params["top"] ?? defaults.top,
  };
}

/** The address of a draft. */
export function paramsOf(draft: Draft): Record<string, string> {
  const { zeroStage, recompute, lancet, top } = draft;
  return { ...jobParams(draft), zeroStage, recompute, lancet, top };
}

/** null: the address asks nothing, or nothing that could be asked. */
export function requestOf(params: Params): RankLayoutsRequest | null {
  const job = jobRequest(params);
  if (job === null) return null;
  const { zeroStage, recompute, lancet, top } = draftOf(params);
  return {
    ...job,
    zeroStage: Number(zeroStage),
    recompute: recompute as Recompute_Kind,
    attention: "FLASH" as AttentionKernel_Kind,
    settings: undefined,
    lancet: lancet === "1",
    top: Number(top),
  };
}

const inputs = { ...jobInputs, profileName: "profile", profileVersion: "version", zeroStage: "zeroStage", recompute: "recompute", lancet: "lancet", top: "top" } as const;

/** The input that a refusal names. null: none of ours. */
export const fieldOf = (error: Pick<CallError, "field" | "message">): keyof Draft | null => refusedInput<keyof Draft>(error, inputs);
