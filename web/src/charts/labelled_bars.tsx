// Horizontal bars, each with its label and its value above it, so that they fit on narrow pages, too.
import { useWidth } from "./frame";
import "./labelled_bars.css";

export interface LabelledBar {
  key: number;
  label: string;
  value: number;
  /** What `value` is the sum of, each with the class that sets its --c; absent: not told apart. */
  parts?: readonly { class: string; value: number }[];
  valueText: string;
}

interface Props {
  /** The figure's name: what it shows, with its main numbers. */
  summary: string;
  bars: readonly LabelledBar[];
  /** A line across all bars, with what it is. */
  limit?: { value: number; text: string };
  /** A click on a bar; who has no pointer has the table's links. */
  onPick?: (key: number) => void;
}

const lineHeight = 18;
const barHeight = 12;
const gap = 6;
/** Below it a label and a value do not stand beside each other. */
const narrow = 440;
const limitRow = 20;

interface Segment {
  class: string;
  from: number;
  to: number;
}

function segmentsOf(value: number, parts: LabelledBar["parts"]): Segment[] {
  if (parts === undefined) return [{ class: "", from: 0, to: value }];
  let from = 0;
  return parts.map((part) => ({ class: part.class, from, to: (from += part.value) }));
}

export function LabelledBars({ summary, bars, limit, onPick }: Props) {
  const [ref, width] = useWidth();
  const most = Math.max(limit?.value ?? 0, ...bars.map(({ value }) => value)) * 1.02;
  const scale = (value: number): number => (most > 0 ? (value / most) * Math.max(0, width - 2) : 0);
  const lines = width < narrow ? 2 : 1;
  const barTop = lines * lineHeight;
  const rowHeight = barTop + barHeight + gap;
  const top = limit === undefined ? 0 : limitRow;
  const height = top + bars.length * rowHeight;
  const at = limit === undefined ? 0 : scale(limit.value);
  return (
    <div ref={ref} class="chart">
      {width > 0 && (
        <svg width={width} height={height} role="img" aria-label={summary}>
          <g aria-hidden="true">
            {bars.map(({ key, label, value, parts, valueText }, index) => (
              <g key={key} transform={`translate(0,${top + index * rowHeight})`} class={onPick === undefined ? "" : "bar-pickable"} onClick={() => onPick?.(key)}>
                {onPick !== undefined && <rect class="bar-catch" width={Math.max(0, width - 2)} height={rowHeight} />}
                <text class="bar-label" y={13}>{label}</text>
                {lines === 1
                  ? <text class="bar-value" x={width - 2} y={13} text-anchor="end">{valueText}</text>
                  : <text class="bar-value" y={13 + lineHeight}>{valueText}</text>}
                <rect class="bar-ground" y={barTop} width={Math.max(0, width - 2)} height={barHeight} />
                {segmentsOf(value, parts).map(({ from, to, class: part }) => (
                  <rect key={part} class={`bar-mark ${part}`} x={scale(from)} y={barTop} width={scale(to) - scale(from)} height={barHeight} />
                ))}
              </g>
            ))}
            {limit !== undefined && (
              <>
                <text class="bar-limit" x={Math.max(2, at - 4)} y={12} text-anchor={at > 80 ? "end" : "start"}>{limit.text}</text>
                {bars.map(({ key }, index) => (
                  <line key={key} class="limit" x1={at} x2={at} y1={top + index * rowHeight + barTop - 2} y2={top + index * rowHeight + barTop + barHeight + 2} />
                ))}
              </>
            )}
          </g>
        </svg>
      )}
    </div>
  );
}
