// What a timeline says beyond its bars: the communication that nothing hides, and who is whose neighbour. Pure; seconds
// throughout.
import type { TaskTiming } from "../../generated/moeplan/v1/timeline";

/** Streams from top to bottom. */
export const streams = ["COMPUTE", "INTRA_NODE", "INTER_NODE", "COPY"] as const;
export type StreamName = (typeof streams)[number];

const collectives: ReadonlySet<string> = new Set(["ALL_TO_ALL", "ALL_GATHER", "REDUCE_SCATTER", "ALL_REDUCE"]);

/** Whether a task communicates: what the planner counts as communication time. */
export const communicates = (task: TaskTiming): boolean => collectives.has(task.kind);
const computes = (task: TaskTiming): boolean => task.stream === "COMPUTE" && !communicates(task);

export interface Span {
  startS: number;
  endS: number;
}

export const endOf = (tasks: readonly TaskTiming[]): number => tasks.reduce((last, task) => Math.max(last, task.endS), 0);

/** The same times as spans that do not touch, in order. */
export function united(spans: readonly Span[]): Span[] {
  const sorted = spans.filter(({ startS, endS }) => endS > startS).sort((a, b) => a.startS - b.startS);
  const result: Span[] = [];
  for (const span of sorted) {
    const last = result[result.length - 1];
    if (last !== undefined && span.startS <= last.endS) last.endS = Math.max(last.endS, span.endS);
    else result.push({ startS: span.startS, endS: span.endS });
  }
  return result;
}

function firstEndingAfter(spans: readonly Span[], timeS: number): number {
  let low = 0;
  let high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle]!.endS <= timeS) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** What of a span is outside of the others, which are united. */
function without(span: Span, others: readonly Span[]): Span[] {
  const parts: Span[] = [];
  let from = span.startS;
  for (let i = firstEndingAfter(others, from); i < others.length; ++i) {
    const other = others[i]!;
    if (other.startS >= span.endS) break;
    if (other.startS > from) parts.push({ startS: from, endS: other.startS });
    from = Math.max(from, other.endS);
  }
  if (from < span.endS) parts.push({ startS: from, endS: span.endS });
  return parts;
}

/** What of the communication no computation hides: by task, the parts of a collective during which nothing computes. */
export function exposedCommunication(tasks: readonly TaskTiming[]): Span[][] {
  const computing = united(tasks.filter(computes));
  return tasks.map((task) => (communicates(task) ? without(task, computing) : []));
}

export const lengthOf = (spans: readonly Span[]): number => spans.reduce((sum, { startS, endS }) => sum + endS - startS, 0);

/** The tasks of each stream in order of their start, as indices; streams without tasks are empty. */
export function byStream(tasks: readonly TaskTiming[]): Map<string, number[]> {
  const rows = new Map<string, number[]>(streams.map((stream) => [stream, []]));
  tasks.forEach((task, index) => {
    const row = rows.get(task.stream) ?? [];
    row.push(index);
    rows.set(task.stream, row);
  });
  for (const row of rows.values()) row.sort((a, b) => tasks[a]!.startS - tasks[b]!.startS || tasks[a]!.endS - tasks[b]!.endS);
  return rows;
}

/** Of a row's indices, the place of the task that runs at a time, else of the nearest; -1: the row is empty. */
export function nearest(tasks: readonly TaskTiming[], row: readonly number[], timeS: number): number {
  let low = 0;
  let high = row.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tasks[row[middle]!]!.startS <= timeS) low = middle + 1;
    else high = middle;
  }
  const before = low - 1;
  if (before < 0) return row.length === 0 ? -1 : 0;
  const after = tasks[row[low] ?? -1];
  const passedS = timeS - tasks[row[before]!]!.endS;
  return after !== undefined && passedS > 0 && after.startS - timeS < passedS ? low : before;
}
