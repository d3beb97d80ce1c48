// Symbols for what must differ by more than its colour. Like dots, each set is one path.
import type { Point } from "./marks";
import type { Scales } from "./frame";

interface Props {
  scales: Scales;
  points: readonly Point[];
  class: string;
}

const arm = 3.5;

export function Crosses({ scales, points, class: name }: Props) {
  let path = "";
  for (const point of points) {
    const x = scales.x(point.x).toFixed(1);
    const y = scales.y(point.y).toFixed(1);
    path += `M${x},${y}m${-arm},${-arm}l${2 * arm},${2 * arm}m0,${-2 * arm}l${-2 * arm},${2 * arm}`;
  }
  return path === "" ? null : <path class={`crosses ${name}`} d={path} />;
}

/** Marks on the x axis that point at it from above. */
export function AxisMarks({ scales, sizes, class: name }: { scales: Scales; sizes: readonly number[]; class: string }) {
  const path = sizes.map((size) => `M${scales.x(size).toFixed(1)},${scales.height}l-6,-11h12z`).join("");
  return path === "" ? null : <path class={`axis-marks ${name}`} d={path} />;
}

export type Toward = "up" | "down" | "left" | "right";

const arrows: Readonly<Record<Toward, string>> = { up: "m0,-5l4.5,8h-9z", down: "m0,5l4.5,-8h-9z", left: "m-5,0l8,4.5v-9z", right: "m5,0l-8,4.5v-9z" };

/** At a chart's edge, towards what lies beyond it. */
export function Arrows({ scales, points, class: name }: { scales: Scales; points: readonly (Point & { toward: Toward })[]; class: string }) {
  const path = points.map(({ x, y, toward }) => `M${scales.x(x).toFixed(1)},${scales.y(y).toFixed(1)}${arrows[toward]}`).join("");
  return path === "" ? null : <path class={`arrows ${name}`} d={path} />;
}
