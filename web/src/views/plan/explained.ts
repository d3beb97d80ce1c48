// What the planner says of a plan's tasks, beside the times of its timeline. Pure.
import type { TaskTiming } from "../../../generated/moeplan/v1/timeline";
import type { ExplainedTask, ExplainRulesResponse } from "../../../generated/moeplan/v1/planner_service";
import { lengthOf } from "../../charts/timeline_facts";
import * as text from "../../format";
import { counted } from "./names";

/** By task. */
export type Explained = ReadonlyMap<string, ExplainedTask>;

export const byTask = (tasks: readonly ExplainedTask[]): Explained => new Map(tasks.map((task) => [task.task, task]));

/** The entries of the profile that answer for tasks and for terms of rules: those that have a curve. */
export function costsNamed(explained: readonly (Explained | null | undefined)[], rules: ExplainRulesResponse | null): string[] {
  const ofTasks = explained.flatMap((tasks) => [...(tasks?.values() ?? [])].map(({ cost }) => cost));
  const ofTerms = (rules?.rules ?? []).flatMap(({ times }) => times).flatMap(({ terms }) => terms).map(({ cost, foretold, standIn }) => (foretold ? standIn : cost));
  return [...new Set([...ofTasks, ...ofTerms])].filter((cost) => cost !== "");
}

/** What a plan spends on each cost, the dearest first, tasks side by side each counted in full. */
export function dearestCosts(timeline: readonly TaskTiming[], explained: Explained | null): { cost: string; tasks: number; timeS: number }[] {
  const spent = new Map<string, { tasks: number; timeS: number }>();
  for (const { task, startS, endS } of timeline) {
    const cost = explained?.get(task)?.cost ?? "";
    if (cost === "") continue;
    const { tasks, timeS } = spent.get(cost) ?? { tasks: 0, timeS: 0 };
    spent.set(cost, { tasks: tasks + 1, timeS: timeS + endS - startS });
  }
  return [...spent].map(([cost, sums]) => ({ cost, ...sums })).sort((a, b) => b.timeS - a.timeS);
}

/** Into the timeline, first to last. */
export const criticalPath = (timeline: readonly TaskTiming[], explained: Explained | null): number[] =>
  timeline
    .flatMap(({ task }, index) => (explained?.get(task)?.critical === true ? [index] : []))
    .sort((a, b) => timeline[a]!.startS - timeline[b]!.startS || timeline[a]!.endS - timeline[b]!.endS);

/** Sums of times differ from times by what adding them up loses. */
const rounding = 1e-6;

/** How much longer a task takes than alone, in seconds. */
export function contentionOf(timing: TaskTiming, { aloneS }: ExplainedTask): number {
  const lengthS = timing.endS - timing.startS;
  return lengthS - aloneS > rounding * lengthS ? lengthS - aloneS : 0;
}

/** "7 tasks, 1.2 ms, 0.1 ms of it contention". */
export function pathWords(timeline: readonly TaskTiming[], explained: Explained): string {
  const tasks = criticalPath(timeline, explained).map((index) => timeline[index]!);
  const addedS = tasks.reduce((sum, task) => sum + contentionOf(task, explained.get(task.task)!), 0);
  return `${counted(tasks.length, "task")}, ${text.seconds(lengthOf(tasks))}${addedS > 0 ? `, ${text.seconds(addedS)} of it contention` : ""}`;
}

/** What the tasks of the planned path took on a rank: what released a task there, nobody records. */
export function pathOnRankWords(rank: readonly TaskTiming[], explained: Explained): string {
  const wanted = [...explained.values()].filter(({ critical }) => critical).length;
  const found = rank.filter(({ task }) => explained.get(task)?.critical === true);
  const some = found.length < wanted ? ` (${found.length} of ${wanted} are recorded)` : "";
  return `${text.seconds(lengthOf(found))}${some}; ranks do not record what a task waits for, so they have no path of their own`;
}

/** "1.2 ms alone, 0.1 ms more by contention; released by gate". */
export function taskWords(timing: TaskTiming, explained: ExplainedTask): string {
  const addedS = contentionOf(timing, explained);
  const released = explained.releasedBy === "" ? "starts the plan" : `released by ${explained.releasedBy}`;
  return `${text.seconds(explained.aloneS)} alone, ${addedS > 0 ? `${text.seconds(addedS)} more by contention` : "and nothing contends with it"}; ${released}`;
}
