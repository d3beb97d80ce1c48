// Two curves beside each other. Pure.
import { hasInterval } from "../../interval";

import type { CurvePoint } from "../../../generated/moeplan/v1/profile_service";

export interface ComparedSize {
  size: number;
  firstS: number;
  secondS: number;
  /** second/first. */
  ratio: number;
  /** Whether the two 90 % intervals meet; null: one of them is not known. */
  overlap: boolean | null;
}

type Read = Pick<CurvePoint, "timeS" | "lowS" | "highS">;

/** Between two drawn points, as the chart draws it: straight in logarithms. The points are dense; null outside of them. */
export function readCurve(points: readonly CurvePoint[], size: number): Read | null {
  const above = points.findIndex((point) => point.size >= size);
  const right = points[above];
  if (right === undefined) return null;
  if (right.size === size) return right;
  const left = points[above - 1];
  if (left === undefined) return null;
  const share = Math.log(size / left.size) / Math.log(right.size / left.size);
  const between = (low: number, high: number): number => (low > 0 && high > 0 ? low * (high / low) ** share : low + (high - low) * share);
  return {
    timeS: between(left.timeS, right.timeS),
    lowS: between(left.lowS, right.lowS),
    highS: between(left.highS, right.highS),
  };
}

/** At sizes of the first curve that both reach, at most `most` of them, evenly spread. */
export function compareCurves(first: readonly CurvePoint[], second: readonly CurvePoint[], most: number): ComparedSize[] {
  const rows = first.flatMap((point): ComparedSize[] => {
    const other = readCurve(second, point.size);
    if (other === null) return [];
    return [{
      size: point.size,
      firstS: point.timeS,
      secondS: other.timeS,
      ratio: other.timeS / point.timeS,
      overlap: hasInterval(point) && hasInterval(other) ? other.lowS <= point.highS && point.lowS <= other.highS : null,
    }];
  });
  if (rows.length <= most) return rows;
  return Array.from({ length: most }, (_, index) => rows[Math.round((index * (rows.length - 1)) / (most - 1))]!);
}
