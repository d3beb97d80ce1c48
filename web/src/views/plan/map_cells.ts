// What the map of winners says of its points. Pure.
import type { SweepPoint } from "../../../generated/moeplan/v1/planner_service";
import { familyClass } from "../../charts/colors";
import type { HeatCell } from "../../charts/heat_grid";
import { describePlan } from "../../describe";
import * as text from "../../format";
import { shortFamily } from "./names";

/** How much longer the runner-up takes, as a share of the best; undefined: there is none. */
export function marginOf({ row, runnerUp }: SweepPoint): number | undefined {
  const best = row?.best;
  if (!best || !runnerUp || best.predictedTimeS <= 0) return undefined;
  return runnerUp.predictedTimeS / best.predictedTimeS - 1;
}

export interface Band {
  /** The margin, as a share of the best, up to which two are alike. */
  share: number;
  /** Whether those are alike as well whose 90 % intervals meet. */
  intervals: boolean;
}

/** Whether the runner-up may as well be the faster. */
export function isNearTie(point: SweepPoint, band: Band): boolean {
  const margin = marginOf(point);
  const best = point.row?.best;
  if (margin === undefined || !best || !point.runnerUp) return false;
  const hasInterval = best.highS > best.lowS || point.runnerUp.highS > point.runnerUp.lowS;
  return (band.intervals && hasInterval && point.runnerUp.lowS <= best.highS) || margin <= band.share;
}

/** How many times as fast as the faster baseline; undefined: there is none. */
export function speedupOf({ row, baselineTimeS }: SweepPoint): number | undefined {
  const best = row?.best;
  if (!best || baselineTimeS === undefined || baselineTimeS === null || best.predictedTimeS <= 0) return undefined;
  return baselineTimeS / best.predictedTimeS;
}

export function cellOf(point: SweepPoint, band: Band): HeatCell {
  const best = point.row?.best;
  if (!best) return { label: "–", missing: true, says: `no plan: ${point.row?.reason ?? "nothing is feasible"}` };
  const margin = marginOf(point);
  const speedup = speedupOf(point);
  const near = isNearTie(point, band);
  const words = [`${describePlan(best)}, ${text.seconds(best.predictedTimeS)}`];
  words.push(
    point.runnerUp && margin !== undefined
      ? `runner-up ${describePlan(point.runnerUp)}, ${text.seconds(point.runnerUp.predictedTimeS)}, ${margin < 0 ? `${text.percent(-margin)} faster by prediction but less simple` : `${text.percent(margin)} slower`}${near ? ", a near tie" : ""}`
      : "no runner-up of another family",
  );
  words.push(speedup === undefined ? "no baseline" : `${text.factor(speedup)} as fast as the faster baseline`);
  if (point.row?.extrapolated) words.push("partly foretold from links");
  return { class: familyClass(best.schedule), label: shortFamily(best.schedule), hatched: near, says: words.join("; ") };
}

/** Families that win somewhere, by how often, most often first. */
export function winners(points: readonly SweepPoint[]): { family: string; count: number }[] {
  const counts = new Map<string, number>();
  for (const { row } of points) {
    if (row?.best) counts.set(row.best.schedule, (counts.get(row.best.schedule) ?? 0) + 1);
  }
  return [...counts].map(([family, count]) => ({ family, count })).sort((a, b) => b.count - a.count || a.family.localeCompare(b.family));
}
