// What a timeline says beyond its bars: its critical path, the communication that nothing hides, and who is whose
// neighbour. Pure; seconds throughout.
import type { TaskTiming } from "../../generated/moeplan/v1/plan";

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

export interface Exposure {
  /** By task, as the timeline lists them: the parts of a collective during which nothing computes. */
  parts: Span[][];
  /** The time during which some collective runs and nothing computes. */
  totalS: number;
}

/** What of the communication no computation hides. */
export function exposedCommunication(tasks: readonly TaskTiming[]): Exposure {
  const computing = united(tasks.filter(computes));
  const parts = tasks.map((task) => (communicates(task) ? without(task, computing) : []));
  const totalS = united(parts.flat()).reduce((sum, { startS, endS }) => sum + endS - startS, 0);
  return { parts, totalS };
}

export interface CriticalPath {
  /** Indices into the timeline, first to last. */
  tasks: number[];
  /** Where nothing of the path runs: waiting that the timeline does not explain. */
  gaps: Span[];
  /** What its tasks take together. */
  lengthS: number;
}

/**
 * The chain of tasks that ends last: from the last end back to a task that ends when this one starts, to a billionth of
 * the whole. Of several, one of the same stream, then the longest, then the first listed. Where none ends then, the
 * path goes on at the last end before, and the time between is a gap.
 */
export function criticalPath(tasks: readonly TaskTiming[]): CriticalPath {
  const tolerance = endOf(tasks) * 1e-9;
  const onPath = new Set<number>();
  const gaps: Span[] = [];
  // In the order in which the walk back wants them: the last end first.
  const byEnd = tasks.map((_, index) => index).sort((a, b) => tasks[b]!.endS - tasks[a]!.endS);
  const better = (index: number, best: number, stream: string): boolean => {
    const [one, other] = [tasks[index]!, tasks[best]!];
    if ((one.stream === stream) !== (other.stream === stream)) return one.stream === stream;
    const difference = one.endS - one.startS - (other.endS - other.startS);
    return Math.abs(difference) > tolerance ? difference > 0 : index < best;
  };
  const endingAt = (timeS: number, stream: string, from: number): number => {
    let best = -1;
    for (let i = from; i < byEnd.length; ++i) {
      const index = byEnd[i]!;
      if (tasks[index]!.endS < timeS - tolerance) break;
      if (!onPath.has(index) && tasks[index]!.endS <= timeS + tolerance && (best < 0 || better(index, best, stream))) best = index;
    }
    return best;
  };

  const path: number[] = [];
  let current = tasks.length === 0 ? -1 : endingAt(endOf(tasks), "", 0);
  let passed = 0;
  while (current >= 0) {
    path.push(current);
    onPath.add(current);
    const { startS, stream } = tasks[current]!;
    while (passed < byEnd.length && tasks[byEnd[passed]!]!.endS > startS + tolerance) ++passed;
    let next = endingAt(startS, stream, passed);
    if (next < 0) {
      let before = passed;
      while (before < byEnd.length && onPath.has(byEnd[before]!)) ++before;
      const last = byEnd[before];
      const endS = last === undefined ? 0 : tasks[last]!.endS;
      if (startS - endS > tolerance) gaps.push({ startS: endS, endS: startS });
      next = last === undefined ? -1 : endingAt(endS, stream, passed);
    }
    current = next;
  }
  path.reverse();
  gaps.reverse();
  return { tasks: path, gaps, lengthS: path.reduce((sum, index) => sum + tasks[index]!.endS - tasks[index]!.startS, 0) };
}

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
