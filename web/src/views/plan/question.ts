// What the view asks the planner, from the address. Pure.
import type { Params } from "../../route";
import { parseWorkload, type WorkloadJson } from "../../workload";

/** Of every request: which profile, and whether what it lacks may be predicted. */
export interface Question {
  profileName: string;
  profileVersion?: number;
  extrapolate: boolean;
}

export function questionOf(params: Params): Question {
  const version = Number(params["version"] ?? "");
  return {
    profileName: params["profile"] ?? "",
    ...(Number.isInteger(version) && version > 0 ? { profileVersion: version } : {}),
    extrapolate: params["extrapolate"] === "1",
  };
}

/** The workload of the address; null: there is none, or it is not one. */
export function askedWorkload(params: Params): { workload: WorkloadJson | null; problem: string } {
  const text = params["workload"];
  if (text === undefined) return { workload: null, problem: "" };
  const parsed = parseWorkload(text);
  return "problem" in parsed ? { workload: null, problem: parsed.problem } : { workload: parsed.workload, problem: "" };
}

/** A number of the address that counts something; null: none. */
export function countOf(text: string | undefined): number | null {
  const value = Number(text ?? "");
  return text !== undefined && text !== "" && Number.isInteger(value) && value >= 0 ? value : null;
}
