// What maps and charts of a sweep show. Pure.
import type { SweepPoint } from "../../../generated/moeplan/v1/planner_service";
import { familyClass } from "../../charts/colors";
import type { HeatCell } from "../../charts/heat_grid";
import { describePlan } from "../../describe";
import * as text from "../../format";
import { hasInterval } from "../../interval";
import { shortFamily } from "../../short_family";
import { isNearTie, runnerUpWords } from "../../sweep/near_tie";

export const timeOf = (point: SweepPoint): number | undefined => point.row?.predictedTimeS ?? point.row?.best?.predictedTimeS;

/** Families that are best somewhere, most points first. */
export function familiesOf(points: readonly SweepPoint[]): { family: string; points: number }[] {
  const counts = new Map<string, number>();
  for (const { row } of points) {
    if (row?.best !== undefined) counts.set(row.best.schedule, (counts.get(row.best.schedule) ?? 0) + 1);
  }
  return [...counts].map(([family, count]) => ({ family, points: count })).sort((a, b) => b.points - a.points || a.family.localeCompare(b.family));
}

/** null: no point has a time. */
export function timeRange(points: readonly SweepPoint[]): { low: number; high: number } | null {
  let low = Infinity;
  let high = -Infinity;
  for (const point of points) {
    const time = timeOf(point);
    if (time === undefined || !(time > 0)) continue;
    low = Math.min(low, time);
    high = Math.max(high, time);
  }
  return low <= high ? { low, high } : null;
}

/** 0 at the shortest time, 1 at the longest, even steps for even factors. */
export function shadeOf(time: number, { low, high }: { low: number; high: number }): number {
  return high > low ? Math.log(time / low) / Math.log(high / low) : 0;
}

/** All there is to say of a point, in a sentence or three. */
export function sentenceOf(point: SweepPoint): string {
  const { row, runnerUp, baselineTimeS } = point;
  const { best } = row ?? {};
  const time = timeOf(point);
  if (best === undefined || time === undefined) return `no plan: ${row?.reason ?? "not known"}`;
  const parts = [`${describePlan(best)} takes ${text.seconds(time)}${hasInterval(best) ? ` (90 %: ${text.seconds(best.lowS)} to ${text.seconds(best.highS)})` : ""}`];
  if (runnerUp !== undefined) parts.push(runnerUpWords(point));
  if (baselineTimeS !== undefined && time > 0) parts.push(`${text.factor(baselineTimeS / time)} as fast as the baseline`);
  if (row?.extrapolated === true) parts.push("some of its costs were not measured but taken from others");
  return parts.join("; ");
}

const missing = (point: SweepPoint): HeatCell => ({ label: "none", missing: true, says: sentenceOf(point) });

export function bestCell(point: SweepPoint): HeatCell {
  const best = point.row?.best;
  if (best === undefined) return missing(point);
  return { class: familyClass(best.schedule), label: shortFamily(best.schedule), hatched: isNearTie(point), says: sentenceOf(point) };
}

export function timeCell(point: SweepPoint, range: { low: number; high: number }): HeatCell {
  const time = timeOf(point);
  if (point.row?.best === undefined || time === undefined) return missing(point);
  return { shade: shadeOf(time, range), label: text.seconds(time), says: sentenceOf(point) };
}
