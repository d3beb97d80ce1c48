// The form of this view, its place in the address, and what it asks the planner. Pure.
import type { AdviseRequest } from "../../../generated/moeplan/v1/planner_service";
import type { Precision_Kind } from "../../../generated/moeplan/v1/step";
import type { CallError } from "../../api/client";
import { jobInputs, jobOf, jobParams, jobRequest, type JobDraft } from "../../job/question";
import { refusedInput } from "../../job/refused";
import type { Params } from "../../route";

/** What the form holds, as it is typed. */
export interface Draft extends JobDraft {
  /** Empty: that of `mine`, else BF16. */
  precision: string;
  /** The training system's name. */
  to: string;
  /** What runs now. Empty: the answer is compared with what is usual. */
  mine: string;
  /** In seconds. Empty: none was measured. */
  measuredStepS: string;
  /** Whether of `mine` only what needs no restart may change. */
  liveOnly: boolean;
}

/** The planner's own default. */
export const usualTarget = "megatron";

export function draftOf(params: Params): Draft {
  return {
    ...jobOf(params),
    precision: params["precision"] ?? "",
    to: params["to"] ?? usualTarget,
    mine: params["mine"] ?? "",
    measuredStepS: params["measuredStepS"] ?? "",
    liveOnly: params["liveOnly"] === "1",
  };
}

/** The address of a draft. */
export function paramsOf(draft: Draft): Record<string, string> {
  const { precision, to, mine, measuredStepS, liveOnly } = draft;
  const hasMine = mine.trim() !== "";
  return { ...jobParams(draft), precision, to, mine: hasMine ? mine : "", measuredStepS, liveOnly: hasMine && liveOnly ? "1" : "" };
}

/** null: the address asks nothing, or nothing that could be asked. */
export function requestOf(params: Params): AdviseRequest | null {
  const job = jobRequest(params);
  if (job === null) return null;
  const { precision, to, mine, measuredStepS, liveOnly } = draftOf(params);
  return {
    ...job,
    ...(precision === "" ? {} : { precision: precision as Precision_Kind }),
    mine,
    ...(measuredStepS === "" ? {} : { measuredStepS: Number(measuredStepS) }),
    to,
    targetVersion: "",
    against: undefined,
    liveOnly,
  };
}

const inputs = { ...jobInputs, precision: "precision", to: "to", mine: "mine", measuredStepS: "measuredStepS" } as const;

/** The input that a refusal names. null: none of ours. */
export const fieldOf = (error: Pick<CallError, "field" | "message">): keyof Draft | null => refusedInput<keyof Draft>(error, inputs);
