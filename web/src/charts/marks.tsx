// What charts draw. Each is one element of SVG whatever the number of points, so that ten thousand cost little.
import { area, line } from "d3-shape";

import type { Scales } from "./frame";

export interface Point {
  x: number;
  y: number;
}

interface LineProps {
  scales: Scales;
  points: readonly Point[];
  class: string;
}

export function Line({ scales, points, class: name }: LineProps) {
  const path = line<Point>((point) => scales.x(point.x), (point) => scales.y(point.y))(points);
  return path === null ? null : <path class={`line ${name}`} d={path} />;
}

interface BandProps {
  scales: Scales;
  points: readonly { x: number; low: number; high: number }[];
  class: string;
}

export function Band({ scales, points, class: name }: BandProps) {
  const path = area<BandProps["points"][number]>(
    (point) => scales.x(point.x),
    (point) => scales.y(point.low),
    (point) => scales.y(point.high),
  )(points);
  return path === null ? null : <path class={`band ${name}`} d={path} />;
}

/** Dots are the round ends of lines without length; `class` gives their width. */
export function Dots({ scales, points, class: name }: LineProps) {
  let path = "";
  for (const point of points) path += `M${scales.x(point.x).toFixed(1)},${scales.y(point.y).toFixed(1)}h0`;
  return path === "" ? null : <path class={`dots ${name}`} d={path} />;
}

/** The extent of some values, wider by `pad` of itself, or by that factor where it is to be logarithmic. */
export function extent(values: Iterable<number>, kind: "log" | "linear", pad: number): [number, number] {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value) || (kind === "log" && value <= 0)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return kind === "log" ? [1, 10] : [0, 1];
  if (kind === "log") return [low / (1 + pad), high * (1 + pad)];
  const more = (high - low || Math.abs(high) || 1) * pad;
  return [low - more, high + more];
}
