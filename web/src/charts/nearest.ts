import type { Scales } from "./frame";
import type { Point } from "./marks";

/** Which of the points is drawn nearest to `at`; null: none within `mostPx`. Points that are not finite are not drawn. */
export function nearestPoint(points: readonly Point[], at: Point, scales: Pick<Scales, "x" | "y">, mostPx: number): number | null {
  const atX = scales.x(at.x);
  const atY = scales.y(at.y);
  let best: number | null = null;
  let least = mostPx * mostPx;
  points.forEach(({ x, y }, index) => {
    const distance = (scales.x(x) - atX) ** 2 + (scales.y(y) - atY) ** 2;
    if (distance <= least) {
      least = distance;
      best = index;
    }
  });
  return best;
}
