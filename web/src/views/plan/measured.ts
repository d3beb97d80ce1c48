// A measured run: its ranks, the plan that ran, and whether that is of the workload that is asked about. Pure.
import type { Plan } from "../../../generated/moeplan/v1/plan";
import type { GetRunResponse } from "../../../generated/moeplan/v1/planner_service";
import type { RankTimeline } from "../../../generated/moeplan/v1/report";
import { endOf } from "../../charts/timeline_facts";
import { describePlan } from "../../describe";
import type { WorkloadJson } from "../../workload";
import { fields, type Field } from "./fields";
import { textsOf } from "./workload_form";

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

/**
 * The plan that ran, as it was answered, with its order and, where that was kept, its timeline; else what is known of it.
 * Its chunks are 0 where only its schedule is.
 */
export function planOfRun({ run, plan: answer }: GetRunResponse): Plan | undefined {
  const ran = run?.plan;
  const kept = answer === undefined ? [] : [...(answer.best === undefined ? [] : [answer.best]), ...answer.candidates];
  return ran && (kept.find((plan) => describePlan(plan) === describePlan(ran)) ?? ran);
}

const textAt = (workload: WorkloadJson, field: Field): string => {
  const text = textsOf(workload)[field.path]!;
  return text === "" ? field.fallback : text;
};

/**
 * The labels of the fields in which a typed workload asks something else than `ran`, which has its defaults filled in.
 */
export const differences = (typed: WorkloadJson, ran: WorkloadJson): string[] =>
  fields
    // Data parallelism that is not asked for is whatever fills the ranks.
    .filter((field) => textAt(typed, field) !== textAt(ran, field) && !(field.path === "layout.dataParallel" && textAt(typed, field) === field.fallback))
    .map(({ label }) => label);
