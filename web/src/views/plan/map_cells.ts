// What the map of winners says of its points. Pure.
import type { SweepPoint } from "../../../generated/moeplan/v1/planner_service";
import { familyClass } from "../../charts/colors";
import type { HeatCell } from "../../charts/heat_grid";
import { describePlan } from "../../describe";
import * as text from "../../format";
import { shortFamily } from "../../short_family";
import { isNearTie, runnerUpWords, type Band } from "../../sweep/near_tie";

/** How many times as fast as the faster baseline; undefined: there is none. */
export function speedupOf({ row, baselineTimeS }: SweepPoint): number | undefined {
  const best = row?.best;
  if (!best || baselineTimeS === undefined || baselineTimeS === null || best.predictedTimeS <= 0) return undefined;
  return baselineTimeS / best.predictedTimeS;
}

export function cellOf(point: SweepPoint, band: Band): HeatCell {
  const best = point.row?.best;
  if (!best) return { label: "–", missing: true, says: `no plan: ${point.row?.reason ?? "nothing is feasible"}` };
  const speedup = speedupOf(point);
  const words = [`${describePlan(best)}, ${text.seconds(best.predictedTimeS)}`, runnerUpWords(point, band)];
  words.push(speedup === undefined ? "no baseline" : `${text.factor(speedup)} as fast as the faster baseline`);
  if (point.row?.extrapolated) words.push("some of its costs were not measured");
  return { class: familyClass(best.schedule), label: shortFamily(best.schedule), hatched: isNearTie(point, band), says: words.join("; ") };
}

/** Families that win somewhere, by how often, most often first. */
export function winners(points: readonly SweepPoint[]): { family: string; count: number }[] {
  const counts = new Map<string, number>();
  for (const { row } of points) {
    if (row?.best) counts.set(row.best.schedule, (counts.get(row.best.schedule) ?? 0) + 1);
  }
  return [...counts].map(([family, count]) => ({ family, count })).sort((a, b) => b.count - a.count || a.family.localeCompare(b.family));
}
