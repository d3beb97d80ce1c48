// Which dispatcher is the fastest and where that changes, in words. Pure.
import type { DispatcherCrossover, DispatcherFlip, DispatcherPoint } from "../../../generated/moeplan/v1/advice";
import * as text from "../../format";
import { axisNames, isDispatcherAxis } from "../../job/dispatcher_axis";

const names: Readonly<Record<string, string>> = { ALL_TO_ALL: "all-to-all", ALL_GATHER: "all-gather", DEEPEP: "DeepEP", HYBRID_EP: "Hybrid-EP" };

/** "DeepEP" of "DEEPEP"; one that is new here by its own name. */
export const dispatcherName = (dispatcher: string): string => (Object.hasOwn(names, dispatcher) ? names[dispatcher]! : dispatcher);

/** "ranks of experts" of "expertParallel". */
export const axisName = (path: string): string => (isDispatcherAxis(path) ? axisNames[path] : path);

/** "8", "1.5". */
export const valueText = (value: number): string => String(Number(value.toPrecision(6)));

/** Where one is faster than the other for sure; empty: nowhere. */
function surely({ from, to, surelyBefore, surelyAfter }: DispatcherFlip): string {
  const parts = [
    ...(surelyBefore === undefined ? [] : [`of ${dispatcherName(from)} up to ${valueText(surelyBefore)}`]),
    ...(surelyAfter === undefined ? [] : [`of ${dispatcherName(to)} from ${valueText(surelyAfter)} on`]),
  ];
  return parts.length === 0 ? "At no value does the 90 % interval tell the two apart." : `The 90 % interval is sure ${parts.join(" and ")}.`;
}

/** Two values of an axis, as what lies between. */
function betweenWords(path: string, before: number, after: number): string {
  const both = `${valueText(before)} and ${valueText(after)}`;
  if (path === "gpus" || path === "expertParallel") return `${both} ${axisName(path)}`;
  return path === "microBatch" ? `micro-batches of ${both}` : `${axisName(path)} ${both}`;
}

export function flipWords(flip: DispatcherFlip, path: string): string {
  const { from, to, before, after } = flip;
  return `Between ${betweenWords(path, before, after)} the fastest changes from ${dispatcherName(from)} to ${dispatcherName(to)}. ${surely(flip)}`;
}

/** A sentence or two for each flip, or that there is none. */
export function crossoverWords({ path, points, flips }: DispatcherCrossover): string[] {
  if (flips.length > 0) return flips.map((flip) => flipWords(flip, path));
  const priced = points.filter(({ best }) => best !== undefined);
  const bests = new Set(priced.map(({ best }) => best!));
  if (bests.size === 0) return ["No dispatcher has a price at any value."];
  if (bests.size > 1) return ["The fastest changes across values at which none has a price; the table below has each."];
  const where = priced.length === points.length ? "at every value" : `at every value that has a price, ${text.count(priced.length)} of ${text.count(points.length)}`;
  const decided = priced.filter((point) => point.decided).length;
  const sure = decided === priced.length ? "The 90 % interval tells it apart from the next one at all of them."
    : decided === 0 ? "At none of them does the 90 % interval tell it apart from the next one."
    : `The 90 % interval tells it apart from the next one at ${text.count(decided)} of ${text.count(priced.length)}.`;
  return [`${dispatcherName([...bests][0]!)} is the fastest ${where}. ${sure}`];
}

/** Why dispatchers have no price at a value; one that all share stands alone. Empty: all have one. */
export function reasonWords({ steps }: Pick<DispatcherPoint, "steps">): string {
  const without = steps.filter(({ stepTimeS }) => stepTimeS === undefined);
  const reasons = new Set(without.map(({ reason }) => reason));
  if (reasons.size === 1 && without.length === steps.length) return [...reasons][0]!;
  return without.map(({ dispatcher, reason }) => `${dispatcherName(dispatcher)}: ${reason}`).join("; ");
}

/** "1.03 (0.97 to 1.10)"; empty: there is no next one. */
export function ratioText({ runnerUp, ratio, low, high }: Pick<DispatcherPoint, "runnerUp" | "ratio" | "low" | "high">): string {
  if (runnerUp === undefined) return "";
  return `${ratio.toFixed(3)}${high > low ? ` (${low.toFixed(2)} to ${high.toFixed(2)})` : ""}`;
}

/** All there is to say of a value, in one sentence. */
export function pointWords(point: DispatcherPoint): string {
  const { steps, best, runnerUp, decided } = point;
  if (best === undefined) return `no price: ${reasonWords(point)}`;
  const times = steps.flatMap(({ dispatcher, stepTimeS }) => (stepTimeS === undefined ? [] : [`${dispatcherName(dispatcher)} ${text.seconds(stepTimeS)}`]));
  const next = runnerUp === undefined ? "" : `; ${dispatcherName(runnerUp)} takes ${ratioText(point)} times as long as ${dispatcherName(best)}${decided ? "" : ", which the interval does not tell apart"}`;
  return `${times.join(", ")}${next}`;
}
