// A chart of samples over size: its marks are drawn once, and what is pointed at is drawn over them.
import type { ComponentChildren } from "preact";
import { useCallback, useMemo, useRef } from "preact/hooks";

import { useCurrent, type CurrentItem } from "../../charts/current";
import { Frame, margin, type Axis, type Scales } from "../../charts/frame";
import type { Point } from "../../charts/marks";
import { nearestPoint } from "../../charts/nearest";
import { VerticalRule } from "../../charts/rule";
import { Tooltip } from "../../charts/tooltip";

const reachPx = 30;

function Mark({ current, points, scales }: { current: CurrentItem; points: readonly Point[]; scales: Scales }) {
  const at = useCurrent(current);
  const point = at === null ? undefined : points[at.index];
  if (point === undefined || !Number.isFinite(point.x)) return null;
  return (
    <g class="current">
      <VerticalRule scales={scales} at={point.x} />
      {Number.isFinite(point.y) && <circle cx={scales.x(point.x)} cy={scales.y(point.y)} r={6} />}
    </g>
  );
}

interface WordsProps {
  name: string;
  current: CurrentItem;
  points: readonly Point[];
  scales: () => Scales | null;
  words: (index: number) => ComponentChildren;
}

function Words({ name, current, points, scales: scalesNow, words }: WordsProps) {
  const at = useCurrent(current);
  const scales = scalesNow();
  const point = at === null ? undefined : points[at.index];
  if (at === null || at.by !== name || scales === null || point === undefined || !Number.isFinite(point.x)) return null;
  const y = Number.isFinite(point.y) ? scales.y(point.y) : scales.height / 2;
  return (
    <Tooltip x={margin.left + scales.x(point.x)} y={margin.top + y} width={margin.left + scales.width + margin.right}>
      {words(at.index)}
    </Tooltip>
  );
}

interface Props {
  /** Tells this chart's pointer from that of the others. */
  name: string;
  summary: string;
  x: Axis;
  y: Axis;
  height: number;
  /** Where each item stands, by its index; NaN: nowhere. */
  points: readonly Point[];
  current: CurrentItem;
  onChoose: (index: number) => void;
  words: (index: number) => ComponentChildren;
  /** What is drawn; changes where anything of this changes. */
  marks: (scales: Scales) => ComponentChildren;
}

export function SampleChart({ name, summary, x, y, height, points, current, onChoose, words, marks }: Props) {
  const scales = useRef<Scales | null>(null);
  const hover = useCallback(
    (at: { x: number; y: number; scales: Scales } | null) => {
      const index = at === null ? null : nearestPoint(points, at, at.scales, reachPx);
      current.set(index === null ? null : { index, by: name });
    },
    [points, current, name],
  );
  const frame = useMemo(
    () => (
      <Frame summary={summary} x={x} y={y} height={height} onHover={hover}>
        {(now) => {
          scales.current = now;
          return <>{marks(now)}<Mark current={current} points={points} scales={now} /></>;
        }}
      </Frame>
    ),
    [summary, x, y, height, hover, marks, current, points],
  );
  return (
    <div
      class="sample-chart"
      onClick={() => {
        const at = current.get();
        if (at !== null) onChoose(at.index);
      }}
    >
      {frame}
      <Words name={name} current={current} points={points} scales={() => scales.current} words={words} />
    </div>
  );
}
