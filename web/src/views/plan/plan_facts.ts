// What an answer says beyond its fields. Pure.
import type { Plan, PlanResponse, Rules } from "../../../generated/moeplan/v1/plan";
import * as text from "../../format";
import { hasInterval } from "../../interval";
import { counted, isBaseline } from "./names";

/** The faster legal baseline among candidates; of ties the simplest comes before it. */
export const fasterBaseline = (candidates: readonly Plan[]): Plan | undefined =>
  candidates.filter(({ schedule }) => isBaseline(schedule)).reduce<Plan | undefined>((fastest, plan) => (fastest && fastest.predictedTimeS <= plan.predictedTimeS ? fastest : plan), undefined);

export const interval = (plan: Plan): string =>
  hasInterval(plan) ? `${text.seconds(plan.lowS)} to ${text.seconds(plan.highS)}` : "not known: the profile has no fit";

/** What its predicted time is made of: computation, communication that nothing hides, and the rest. */
export function partsOf(plan: Plan): { computeS: number; exposedS: number; restS: number } {
  const { computeTimeS: computeS, exposedCommunicationS: exposedS, predictedTimeS } = plan;
  return { computeS, exposedS, restS: Math.max(0, predictedTimeS - computeS - exposedS) };
}

/** A name of letters, digits and dashes, whatever the workload is called. */
export function fileNameOf(answer: PlanResponse): string {
  const name = (answer.workload?.name ?? "").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60);
  return `plan-${name === "" ? "layer" : name}.json`;
}

/** Kernels of experts count flops, everything else bytes. */
export const unitOf = (cost: string): "bytes" | "flops" => (cost.startsWith("EXPERT_") ? "flops" : "bytes");

export interface Choice {
  rule: string;
  choice: string;
  timeS: number;
}

/** What each rule would do, by its own reckoning. */
export function choicesOf(rules: Rules | undefined): Choice[] {
  const list: Choice[] = [];
  const { parm, monta, schemoe } = rules ?? {};
  if (parm) list.push({ rule: "parm", choice: parm.choice, timeS: parm.choice === "PARM_S1" ? parm.tS1S : parm.tS2S });
  if (monta) {
    const chosen = monta.choice === "MONTA_O2" ? monta.o2 : monta.choice === "MONTA_O3" ? monta.o3 : undefined;
    const chunks = chosen === undefined || chosen.chunks <= 1 ? "" : ` with ${chosen.chunks} chunks`;
    list.push({ rule: "monta", choice: `${monta.choice}${chunks}`, timeS: chosen?.timeS ?? monta.o1?.timeS ?? NaN });
  }
  if (schemoe) list.push({ rule: "schemoe", choice: `PIPELINE in ${counted(schemoe.partitionDegree, "partition")}`, timeS: schemoe.optimalTimeS });
  return list;
}
