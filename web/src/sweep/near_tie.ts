// How close the runner-up of a swept point comes. Pure.
import type { SweepPoint } from "../../generated/moeplan/v1/planner_service";
import { describePlan } from "../describe";
import * as text from "../format";
import { hasInterval } from "../interval";

/**
 * How much longer the runner-up takes, as a share of the best; undefined: there is none. Below 0 where the planner
 * prefers a simpler plan to one that is faster by less than measurements tell apart.
 */
export function marginOf({ row, runnerUp }: SweepPoint): number | undefined {
  const best = row?.best;
  if (!best || !runnerUp || best.predictedTimeS <= 0) return undefined;
  return runnerUp.predictedTimeS / best.predictedTimeS - 1;
}

/** What counts as a near tie beyond the planner's own word. */
export interface Band {
  /** The margin, as a share of the best, below which two are alike as well. */
  share: number;
  /** Whether those are alike as well whose 90 % intervals meet; nearly all do. */
  intervals: boolean;
}

/** What the planner itself cannot tell apart, and nothing more. */
export const defaultBand: Band = { share: 0, intervals: false };

/** Whether the runner-up may as well be the faster. */
export function isNearTie(point: SweepPoint, band: Band = defaultBand): boolean {
  const margin = marginOf(point);
  const best = point.row?.best;
  const { runnerUp, indistinctS } = point;
  if (margin === undefined || !best || !runnerUp) return false;
  // A runner-up that is faster is a tie in any case: the planner puts a slower plan first nowhere else.
  if (runnerUp.predictedTimeS - best.predictedTimeS <= indistinctS || margin < band.share) return true;
  return band.intervals && hasInterval(best) && hasInterval(runnerUp) && runnerUp.lowS <= best.highS && best.lowS <= runnerUp.highS;
}

/** "runner-up PIPELINE, 1.3 s, 30 % slower". */
export function runnerUpWords(point: SweepPoint, band: Band = defaultBand): string {
  const margin = marginOf(point);
  if (margin === undefined || !point.runnerUp) return "no runner-up of another family";
  const name = `runner-up ${describePlan(point.runnerUp)}, ${text.seconds(point.runnerUp.predictedTimeS)}`;
  if (margin < 0) return `${name}, ${text.percent(-margin)} faster by prediction, which measurements cannot tell apart`;
  return `${name}, ${text.percent(margin)} slower${isNearTie(point, band) ? ", a near tie" : ""}`;
}
