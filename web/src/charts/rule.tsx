import type { Scales } from "./frame";

interface Props {
  scales: Scales;
  at: number;
  class?: string;
}

export function VerticalRule({ scales, at, class: name = "" }: Props) {
  const x = scales.x(at);
  return <line class={`rule ${name}`} x1={x} x2={x} y1={0} y2={scales.height} />;
}

export function HorizontalRule({ scales, at, class: name = "" }: Props) {
  const y = scales.y(at);
  return <line class={`rule ${name}`} x1={0} x2={scales.width} y1={y} y2={y} />;
}
