// What the axes of the charts span. Pure.
import { max } from "d3-array";

import { extent } from "../../charts/marks";
import type { Mark } from "./places";
import { isDrawn, type Item } from "./samples";

import type { CurvePoint } from "../../../generated/moeplan/v1/profile_service";

export interface Domains {
  size: [number, number];
  timeS: [number, number];
  residual: [number, number];
  ratePerS: [number, number];
}

interface Shown {
  points: readonly CurvePoint[];
  items: readonly Item[];
  /** What the chart of times draws of them. */
  times: readonly Mark[];
  second: readonly CurvePoint[];
  peakPerS: number;
  marked: readonly number[];
}

/** At least this wide on each side, so that noise of a perfect fit does not fill the chart. */
const leastResidual = 0.05;

const edge = 0.03;

/** `value` where it lies between an axis' ends, else just inside the nearer one: what lies beyond is still seen. */
export function kept(value: number, [low, high]: readonly [number, number], kind: "log" | "linear"): number {
  const inset = kind === "log" ? (high / low) ** edge : (high - low) * edge;
  if (value > high) return kind === "log" ? high / inset : high - inset;
  if (value < low) return kind === "log" ? low * inset : low + inset;
  return value;
}

/** All drawn times of stored samples are in; what was set aside, and outliers' residuals and rates, may lie beyond. */
export function domainsOf({ points, items, times, second, peakPerS, marked }: Shown): Domains {
  const stored = items.filter((item) => item.kind !== "set aside" && isDrawn(item));
  const counted = stored.filter(({ kind }) => kind === "counted");
  const residuals = [
    ...counted.map(({ residual }) => residual ?? 0),
    ...points.flatMap(({ timeS, lowS, highS }) => (timeS > 0 ? [lowS / timeS - 1, highS / timeS - 1] : [])),
  ];
  const widest = Math.max(leastResidual, max(residuals, Math.abs) ?? 0) * 1.1;
  const curves = [...points, ...second];
  return {
    size: extent([...stored, ...curves].map(({ size }) => size).concat(marked), "log", 0.15),
    timeS: extent([...times.flatMap(({ kind, y }) => (kind === "set aside" ? [] : y)), ...curves.flatMap(({ lowS, timeS, highS }) => [lowS, timeS, highS])], "log", 0.15),
    residual: [Math.max(-1, -widest), widest],
    ratePerS: [0, Math.max(peakPerS, max(curves, ({ ratePerS }) => ratePerS) ?? 0, max(counted, ({ ratePerS }) => ratePerS ?? 0) ?? 0) * 1.06 || 1],
  };
}
