// Horizontal bars from 0, each made of parts that follow each other, with a whisker for an interval and a thin strip for
// a quantity beside. Names stand above their bars, so that narrow pages have room.
import { scaleLinear } from "d3-scale";
import { useId } from "preact/hooks";

import { useWidth } from "./frame";
import "./bars.css";

export interface BarPart {
  /** Class that sets --c. */
  class: string;
  value: number;
  hatched?: boolean;
}

export interface Bar {
  key: string | number;
  name: string;
  parts: readonly BarPart[];
  /** Ends of the interval; equal: none is known. */
  low: number;
  high: number;
  /** Of the strip below; absent: none. */
  strip?: BarPart;
  /** What stands behind the bar. */
  told: string;
}

interface Props {
  summary: string;
  bars: readonly Bar[];
  format: (value: number) => string;
  axisLabel: string;
  current?: string | number;
  onPick?: (key: Bar["key"]) => void;
}

const rowHeight = 42;
const barTop = 18;
const barHeight = 13;
const bottom = 36;
const toldWidth = 66;

export function Bars({ summary, bars, format, axisLabel, current, onPick }: Props) {
  const [ref, outer] = useWidth();
  const hatch = useId();
  const width = Math.max(1, outer - toldWidth);
  const most = Math.max(...bars.map(({ parts, high, strip }) => Math.max(parts.reduce((sum, { value }) => sum + value, 0), high, strip?.value ?? 0)), 1e-12);
  const scale = scaleLinear([0, most], [0, width]);
  const height = bars.length * rowHeight;

  return (
    <div ref={ref} class="chart bars">
      {outer > 0 && (
        <svg width={outer} height={height + bottom} role="img" aria-label={summary}>
          <defs>
            <pattern id={hatch} width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">
              <line class="bars-hatch" y2="5" />
            </pattern>
          </defs>
          <g aria-hidden="true">
            {scale.ticks(Math.max(2, width / 110)).map((tick) => (
              <g key={tick} transform={`translate(${scale(tick)},0)`}>
                <line class="grid" y2={height} />
                <text class="tick" y={height + 14} text-anchor={tick === 0 ? "start" : "middle"}>{format(tick)}</text>
              </g>
            ))}
            <text class="axis-label" x={width / 2} y={height + 31} text-anchor="middle">{axisLabel}</text>
            {bars.map((bar, row) => {
              let from = 0;
              const chosen = bar.key === current;
              return (
                <g key={bar.key} transform={`translate(0,${row * rowHeight})`} class={onPick === undefined ? "" : "bars-pickable"} onClick={() => onPick?.(bar.key)}>
                  <rect class={chosen ? "bars-row bars-current" : "bars-row"} width={outer} height={rowHeight - 2} />
                  <text class={chosen ? "bars-name bars-name-current" : "bars-name"} x={2} y={13}>{bar.name}</text>
                  {bar.parts.map((part, index) => {
                    const left = scale(from);
                    from += part.value;
                    const box = { x: left, y: barTop, width: Math.max(0, scale(from) - left), height: barHeight };
                    return (
                      <g key={index}>
                        <rect class={`bars-part ${part.class}`} {...box} />
                        {part.hatched && <rect fill={`url(#${hatch})`} {...box} />}
                      </g>
                    );
                  })}
                  {bar.high > bar.low && (
                    <path class="bars-whisker" d={`M${scale(bar.low)},${barTop + 2}v${barHeight - 4}m0,${-(barHeight - 4) / 2}H${scale(bar.high)}m0,${-(barHeight - 4) / 2}v${barHeight - 4}`} />
                  )}
                  {bar.strip !== undefined && <rect class={`bars-part ${bar.strip.class}`} y={barTop + barHeight + 1} width={scale(bar.strip.value)} height={4} />}
                  <text class="bars-told" x={Math.max(scale(from), scale(bar.high)) + 5} y={barTop + barHeight / 2} dy="0.35em">{bar.told}</text>
                </g>
              );
            })}
          </g>
        </svg>
      )}
    </div>
  );
}
