// What schedules and their parts are called. Pure.
import type { Plan } from "../../../generated/moeplan/v1/plan";
import { plainName } from "../../format";

/** With what a cell of a map has room for. */
const shortNames: Readonly<Record<string, string>> = {
  BASELINE: "B",
  BASELINE_TP: "BT",
  PARM_S1: "S1",
  PARM_S2: "S2",
  MONTA_O1: "O1",
  MONTA_O2: "O2",
  MONTA_O3: "O3",
  PIPELINE: "P",
};

/** Schedules of extensions are called as they call themselves. */
export const shortFamily = (family: string): string => shortNames[family] ?? family.slice(0, 3);

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
