// Lines that end where a value lacks. Pure.
import type { Point } from "./marks";

/** Points in runs without one that lacks its y, so that no line leads over a gap. */
export function unbroken(points: readonly Point[]): Point[][] {
  const runs: Point[][] = [];
  let isOpen = false;
  for (const point of points) {
    const isThere = Number.isFinite(point.y);
    if (isThere && isOpen) runs[runs.length - 1]!.push(point);
    else if (isThere) runs.push([point]);
    isOpen = isThere;
  }
  return runs;
}
