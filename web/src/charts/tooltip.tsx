import type { ComponentChildren } from "preact";

interface Props {
  /** In px of the chart's box. */
  x: number;
  y: number;
  /** The box' width, so that the words stay inside. */
  width: number;
  children: ComponentChildren;
}

const gap = 12;

/** Words beside a point of a chart, for those who see it; it stands in the chart's box, over the chart. */
export function Tooltip({ x, y, width, children }: Props) {
  const side = x > width / 2 ? { right: `${width - x + gap}px` } : { left: `${x + gap}px` };
  return <div class="tooltip" aria-hidden="true" style={{ top: `${Math.max(0, y - gap)}px`, ...side }}>{children}</div>;
}
