// What schedules and their parts are called. Pure.
import type { Plan } from "../../../generated/moeplan/v1/plan";
import { plainName } from "../../format";
import { shortFamily } from "../../short_family";

export const isBaseline = (family: string): boolean => family === "BASELINE" || family === "BASELINE_TP";

const algorithms: Readonly<Record<string, string>> = {
  DIRECT: "direct",
  HIER_1D: "hierarchical, 1 dimension",
  HIER_2D: "hierarchical, 2 dimensions",
  PIPE: "Pipe-A2A",
};
export const algorithmName = (algorithm: string): string => algorithms[algorithm] ?? plainName(algorithm);

export const codecName = (codec: string): string => (codec === "NONE" || codec === "" ? "none" : codec);

/** "N 4" and "r 2" where they are above 1. */
export function shortKnobs(plan: Plan): string {
  const words = [shortFamily(plan.schedule)];
  if (plan.chunks > 1) words.push(`N${plan.chunks}`);
  if (plan.partitionDegree > 1) words.push(`r${plan.partitionDegree}`);
  return words.join(" ");
}

/** "1 rule", "2 rules". */
export const counted = (many: number, one: string, more = `${one}s`): string => `${many} ${many === 1 ? one : more}`;
