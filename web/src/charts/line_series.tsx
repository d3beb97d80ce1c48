// Lines of several series over one axis, the best one ringed at each value; read by pointer and by keyboard.
import type { ComponentChildren } from "preact";
import { useId, useMemo } from "preact/hooks";

import { Frame, type Scales } from "./frame";
import { moveCursor } from "./heat_grid";
import { extent, Line, type Point } from "./marks";
import { doubles, positionsOf } from "./positions";
import { KeyBox, useReadout } from "./readout";
import { unbroken } from "./series";
import { markPath, nearest } from "./shapes";
import "./line_series.css";
import "./shapes.css";

export interface Series {
  key: string;
  name: string;
  /** Class that sets --c. */
  class: string;
  /** At each value of the axis; undefined: none. */
  values: readonly (number | undefined)[];
}

interface Props {
  /** What kind of thing the lines show, such as "Step by dispatcher". */
  name: string;
  /** What the chart shows, in one sentence. */
  summary: string;
  axis: { name: string; values: readonly string[] };
  /** What the lines measure. */
  measure: string;
  format: (value: number) => string;
  series: readonly Series[];
  /** Key of the series that is the best at each value. */
  best: readonly (string | undefined)[];
  /** What there is to say at a value. */
  tell: (index: number) => ComponentChildren;
}

const pointerReach = 40;

export function LineSeries({ name, summary, axis, measure, format, series, best, tell }: Props) {
  const hint = useId();
  const { values } = axis;
  const { shown: told, cursor, setCursor, setPointed, walkTo } = useReadout<number>((index) => values[index] !== undefined);
  const { at, kind } = useMemo(() => {
    const found = positionsOf(values);
    return doubles(found.at) ? { ...found, kind: "log2" as const } : found;
  }, [values]);
  const pointOf = (one: Series, index: number): Point => ({ x: at[index]!, y: one.values[index] ?? Number.NaN });
  const measured = series.flatMap((one) => one.values.map((value) => value ?? Number.NaN));
  const [low, high] = extent(measured, "log", 0);
  // One decade has too few ticks for a logarithm.
  const yKind = high / low > 8 ? "log" : "linear";
  const hover = (where: { x: number; scales: Scales } | null): void => {
    if (where === null) return setPointed(null);
    setPointed(nearest(at.map((x) => ({ x: where.scales.x(x), y: 0 })), where.scales.x(where.x), 0, pointerReach));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const next = moveCursor({ x: cursor ?? 0, y: 0 }, event.key, values.length, 1);
    if (next === null) return;
    walkTo(next.x);
    event.preventDefault();
  };
  const placed = (scales: Scales, { x, y }: Point): Point => ({ x: scales.x(x), y: scales.y(y) });
  const bestPoints = best.flatMap((key, index) => {
    const one = series.find((other) => other.key === key);
    return one?.values[index] === undefined ? [] : [pointOf(one, index)];
  });
  return (
    <>
      <ul class="legend">
        {series.map((one, index) => (
          <li key={one.key}>
            <svg class={`shape ${one.class}`} width="12" height="12" viewBox="-6 -6 12 12" aria-hidden="true"><path d={markPath(index, [{ x: 0, y: 0 }], 4)} /></svg>
            {one.name}
          </li>
        ))}
        <li><svg class="shape" width="12" height="12" viewBox="-9 -9 18 18" aria-hidden="true"><circle class="series-best" r="7" /></svg> the fastest</li>
      </ul>
      <KeyBox class="series-box" kind="line chart" summary={`${name}: arrow keys walk its values`} told={hint} onKeyDown={onKeyDown} onFocus={() => setCursor(cursor ?? 0)}>
        <Frame
          summary={summary}
          x={{ label: axis.name, domain: extent(at, kind === "log2" ? "log" : "linear", kind === "log2" ? 0.15 : 0.06), kind, format: (value) => String(Number(value.toPrecision(6))) }}
          y={{ label: measure, domain: extent(measured, yKind, yKind === "log" ? 0.15 : 0.08), kind: yKind, format }}
          height={340}
          onHover={hover}
        >
          {(scales) => (
            <>
              {told !== null && <line class="series-cursor" x1={scales.x(at[told]!)} x2={scales.x(at[told]!)} y2={scales.height} />}
              {series.map((one, index) => {
                const points = values.map((_, value) => pointOf(one, value));
                return (
                  <g key={one.key} class={one.class}>
                    {unbroken(points).map((part) => <Line key={part[0]!.x} scales={scales} points={part} class="series-line" />)}
                    <path class="shape" d={markPath(index, points.filter(({ y }) => y > 0).map((point) => placed(scales, point)), 4)} />
                  </g>
                );
              })}
              {bestPoints.map((point) => <circle key={point.x} class="series-best" cx={scales.x(point.x)} cy={scales.y(point.y)} r={8} />)}
            </>
          )}
        </Frame>
      </KeyBox>
      <p class="told" id={hint} aria-live="polite">
        {told === null
          ? <span class="muted">Point at a value, or walk them with the arrow keys. The table below has them all.</span>
          : <>{axis.name} {values[told]}: {tell(told)}</>}
      </p>
    </>
  );
}
