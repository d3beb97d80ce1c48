// The ranks of a measured run, and which candidate it ran. Pure.
import type { Plan } from "../../../generated/moeplan/v1/plan";
import type { RankTimeline } from "../../../generated/moeplan/v1/report";
import { endOf } from "../../charts/timeline_facts";
import { describePlan } from "../../describe";

export interface MeasuredRank {
  rank: number;
  endS: number;
}

/** Ranks with tasks, the slowest first. */
export const slowestFirst = (ranks: readonly RankTimeline[]): MeasuredRank[] =>
  ranks
    .filter(({ timeline }) => timeline.length > 0)
    .map(({ rank, timeline }) => ({ rank, endS: endOf(timeline) }))
    .sort((a, b) => b.endS - a.endS || a.rank - b.rank);

/** The place of the candidate with the same choices; else of the first of its schedule; -1: there is none. */
export function candidateOf(ran: Plan, candidates: readonly Plan[]): number {
  const wanted = describePlan(ran);
  const same = candidates.findIndex((plan) => describePlan(plan) === wanted);
  return same >= 0 ? same : candidates.findIndex(({ schedule }) => schedule === ran.schedule);
}
