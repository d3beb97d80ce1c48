// A chart's frame: scales, axes, grid and a name for those who do not see it. What stands inside is drawn by its children.
import { range, ticks } from "d3-array";
import { scaleLinear, scaleLog, type ScaleContinuousNumeric } from "d3-scale";
import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";

export type Scale = ScaleContinuousNumeric<number, number>;

export interface Scales {
  x: Scale;
  y: Scale;
  /** Of the area between the axes, in px. */
  width: number;
  height: number;
}

export interface Axis {
  label: string;
  /** Both above 0 for "log". */
  domain: readonly [number, number];
  kind: "log" | "log2" | "linear";
  format: (value: number) => string;
  /** About how much room a tick of the x axis takes, in px; that of short numbers if absent. */
  tickPx?: number;
}

interface Props {
  /** What the chart shows, in one sentence with its main numbers. */
  summary: string;
  x: Axis;
  y: Axis;
  height?: number;
  /** Told where the pointer is, in units of the axes; null: outside. */
  onHover?: (at: { x: number; y: number; scales: Scales } | null) => void;
  children: (scales: Scales) => ComponentChildren;
}

/** Around the area between the axes, in px: what is laid over a chart needs it. */
export const margin = { left: 68, right: 16, top: 10, bottom: 40 };

function scaleOf({ kind, domain }: Axis, range: [number, number]): Scale {
  if (kind === "linear") return scaleLinear(domain, range);
  return scaleLog(domain, range).base(kind === "log2" ? 2 : 10);
}

const leastBetween = 4;

/** Where fewer than two powers of the base lie: 1, 2 and 5 of each, else even steps. Two at least. */
function ticksBetween(low: number, high: number, base: number, wanted: number): number[] {
  // Steps of so small a share of the domain that two lie in it, wherever it begins.
  const count = Math.max(leastBetween, wanted);
  if (base === 2) {
    const step = 2 ** Math.ceil(Math.log2((high - low) / count));
    return range(Math.ceil(low / step), Math.floor(high / step) + 1).map((multiple) => multiple * step);
  }
  const decade = Math.floor(Math.log10(low));
  const round = [decade, decade + 1].flatMap((power) => [1, 2, 5].map((digit) => Number(`${digit}e${power}`))).filter((tick) => tick >= low && tick <= high);
  return round.length < 2 ? ticks(low, high, count) : round;
}

/** At most about `wanted` of a scale's ticks, evenly thinned, but two: those of logarithmic scales come in powers of the base. */
export function ticksOf(scale: Scale, kind: Axis["kind"], wanted: number): number[] {
  if (kind === "linear") return scale.ticks(wanted);
  const base = kind === "log2" ? 2 : 10;
  const [low, high] = scale.domain() as [number, number];
  const powers: number[] = [];
  for (let power = Math.ceil(Math.log(low) / Math.log(base) - 1e-9); base ** power <= high * (1 + 1e-9); ++power) powers.push(power);
  if (powers.length < 2) return ticksBetween(low, high, base, wanted);
  const step = Math.ceil(powers.length / wanted);
  const even = powers.filter((power) => power % step === 0);
  return (even.length < 2 ? powers.filter((_, index) => index % step === 0) : even).map((power) => base ** power);
}

/** The width of an element in px, as it changes. */
export function useWidth(): [RefObject<HTMLDivElement | null>, number] {
  const ref = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = ref.current;
    if (element === null) return undefined;
    setWidth(element.clientWidth);
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

const tickCharacterPx = 6.5;

/** Below its tick, and to the left where the chart ends: `room` px are to the right of it. */
function XLabel({ label, room, y }: { label: string; room: number; y: number }) {
  const beyond = Math.max(0, (label.length * tickCharacterPx) / 2 - room);
  return <text class="tick" x={-beyond} y={y} text-anchor="middle">{label}</text>;
}

export function Frame({ summary, x, y, height = 300, onHover, children }: Props) {
  const [ref, outer] = useWidth();
  const clip = useId();
  const width = Math.max(0, outer - margin.left - margin.right);
  const inner = height - margin.top - margin.bottom;
  const scales: Scales = { x: scaleOf(x, [0, width]), y: scaleOf(y, [inner, 0]), width, height: inner };

  const hover = (event: PointerEvent): void => {
    const box = (event.currentTarget as SVGElement).getBoundingClientRect();
    const px = event.clientX - box.left - margin.left;
    const py = event.clientY - box.top - margin.top;
    const inside = px >= 0 && px <= width && py >= 0 && py <= inner;
    onHover?.(inside ? { x: scales.x.invert(px), y: scales.y.invert(py), scales } : null);
  };

  return (
    <div ref={ref} class="chart">
      {width > 0 && (
        <svg
          width={outer}
          height={height}
          role="img"
          aria-label={summary}
          {...(onHover === undefined ? {} : { onPointerMove: hover, onPointerLeave: () => onHover(null) })}
        >
          <clipPath id={clip}><rect width={width} height={inner} /></clipPath>
          <g transform={`translate(${margin.left},${margin.top})`} aria-hidden="true">
            {ticksOf(scales.y, y.kind, Math.max(2, inner / 45)).map((tick) => (
              <g key={tick} transform={`translate(0,${scales.y(tick)})`}>
                <line class="grid" x2={width} />
                <text class="tick" x={-8} dy="0.32em" text-anchor="end">{y.format(tick)}</text>
              </g>
            ))}
            {ticksOf(scales.x, x.kind, Math.max(2, width / (x.tickPx ?? 80))).map((tick) => (
              <g key={tick} transform={`translate(${scales.x(tick)},0)`}>
                <line class="grid" y2={inner} />
                <XLabel label={x.format(tick)} room={width + margin.right - scales.x(tick)} y={inner + 16} />
              </g>
            ))}
            <text class="axis-label" x={width / 2} y={inner + 34} text-anchor="middle">{x.label}</text>
            <text class="axis-label" transform={`translate(${-margin.left + 12},${inner / 2}) rotate(-90)`} text-anchor="middle">{y.label}</text>
            <g clip-path={`url(#${clip})`}>{children(scales)}</g>
          </g>
        </svg>
      )}
    </div>
  );
}
