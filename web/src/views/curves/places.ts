// Where the marks of samples stand in a chart. Pure.
import type { Point } from "../../charts/marks";
import type { Toward } from "../../charts/symbols";
import { kept } from "./domains";
import { isDrawn, sampleKinds, type Item, type SampleKind } from "./samples";

export interface Mark extends Point {
  kind: SampleKind;
}

/** Times over sizes: every repeat, or of each sample the median and what the fit rejects. */
export function timeMarks(items: readonly Item[], everyRepeat: boolean): Mark[] {
  return items.filter(isDrawn).flatMap(({ kind, size, timeS, repeats, rejected }): Mark[] => {
    const outliers = kind === "counted" || kind === "outlier" ? rejected : [];
    const of = (repeat: number): Mark => ({ kind: outliers.includes(repeat) ? "outlier" : everyRepeat && kind === "outlier" ? "counted" : kind, x: size, y: repeats[repeat]! });
    if (everyRepeat) return repeats.flatMap((time, repeat) => (time > 0 ? [of(repeat)] : []));
    return [{ kind, x: size, y: timeS }, ...(kind === "counted" ? outliers.map(of) : [])];
  });
}

export interface Placed {
  marks: Record<SampleKind, Point[]>;
  /** Those that lie outside of the axes: at the edge, pointing at where they are. */
  beyond: (Point & { toward: Toward })[];
}

type Domain = readonly [number, number];

const sideOf = (value: number, [low, high]: Domain): -1 | 0 | 1 => (value > high ? 1 : value < low ? -1 : 0);

function towardOf(across: -1 | 0 | 1, upwards: -1 | 0 | 1): Toward | null {
  if (upwards !== 0) return upwards > 0 ? "up" : "down";
  if (across !== 0) return across > 0 ? "right" : "left";
  return null;
}

/** Sizes are logarithmic always. */
export function placed(marks: readonly Mark[], sizes: Domain, values: Domain, kind: "log" | "linear"): Placed {
  const found: Placed = { marks: { counted: [], outlier: [], retired: [], "set aside": [] }, beyond: [] };
  for (const mark of marks) {
    const toward = towardOf(sideOf(mark.x, sizes), sideOf(mark.y, values));
    const point = { x: kept(mark.x, sizes, "log"), y: kept(mark.y, values, kind) };
    if (toward === null) found.marks[mark.kind].push(point);
    else found.beyond.push({ ...point, toward });
  }
  return found;
}

/** Kinds that have a mark of their own. */
export const kindsOf = (all: readonly Placed[]): Set<SampleKind> => new Set(sampleKinds.filter((kind) => all.some(({ marks }) => marks[kind].length > 0)));
