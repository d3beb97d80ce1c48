// A sweep over two axes: which schedule is best, and how long it takes.
import type { ComponentChildren } from "preact";
import { useCallback, useMemo, useRef } from "preact/hooks";

import type { SweepPoint } from "../../../generated/moeplan/v1/planner_service";
import { familyClass } from "../../charts/colors";
import { shadeOpacity } from "../../charts/heat_grid";
import { HeatMap, type HeatCell } from "../../charts/heat_map";
import { saveFile, svgFile } from "../../charts/svg_file";
import * as text from "../../format";
import { setParams } from "../../route";
import { shortFamily } from "../../short_family";
import { pointAt, type Axis } from "../../sweep/axes";
import { bestCell, familiesOf, timeCell, timeRange } from "./grid";

const hatchedText = "hatched: a near tie, best and runner-up nearer than measurements tell apart";

interface Props {
  axes: readonly Axis[];
  points: readonly SweepPoint[];
  /** Which axes are across and up. */
  x: number;
  y: number;
  /** Of each axis, the value that is shown where it is neither. */
  at: readonly number[];
  onPick: (point: SweepPoint) => void;
}

export function Maps({ axes, points, x, y, at, onPick }: Props) {
  const xAxis = axes[x]!;
  const yAxis = axes[y]!;
  const fixed = at.join(" ");
  const pointOf = useCallback(
    (column: number, row: number): SweepPoint | undefined => {
      const place = axes.map((_, axis) => (axis === x ? column : axis === y ? row : at[axis]!));
      return points[pointAt(axes, place)];
    },
    [axes, points, x, y, fixed],
  );
  const families = useMemo(() => familiesOf(points), [points]);
  const range = useMemo(() => timeRange(points), [points]);
  const best = useCallback((column: number, row: number): HeatCell | null => cellOf(pointOf(column, row), bestCell), [pointOf]);
  const time = useCallback(
    (column: number, row: number): HeatCell | null => cellOf(pointOf(column, row), (point) => timeCell(point, range ?? { low: 1, high: 1 })),
    [pointOf, range],
  );
  const pick = (column: number, row: number): void => {
    const point = pointOf(column, row);
    if (point?.row?.best !== undefined) onPick(point);
  };
  const shared = { xLabel: xAxis.path, yLabel: yAxis.path, xValues: xAxis.values, yValues: yAxis.values, onPick: pick };
  const over = `over ${xAxis.path} and ${yAxis.path}`;
  const third = axes.flatMap(({ path, values }, axis) => (axis === x || axis === y ? [] : [`At ${path} ${values[at[axis]!]}`]));
  const named = families.map(({ family }) => `${shortFamily(family)} ${family}`).join(", ");
  const wins = families.map(({ family, points: count }) => `${family} at ${text.count(count)} points`).join(", ");
  const span = range === null ? "no point has a plan" : `${text.seconds(range.low)} to ${text.seconds(range.high)}`;
  return (
    <div class="pair">
      <Figure title="Best schedule" file="best-schedule.svg" name={`Best schedule ${over}`} notes={[...third, named, hatchedText]}>
        <ul class="legend">
          {families.map(({ family }) => (
            <li key={family}><span class={`swatch ${familyClass(family)}`} aria-hidden="true" />{shortFamily(family)} {family}</li>
          ))}
          <li>{hatchedText}</li>
        </ul>
        <HeatMap summary={`Best schedule ${over}: ${wins === "" ? "none" : wins}${axes.length > 2 ? ", counting all values of the third axis" : ""}.`} cell={best} {...shared} />
      </Figure>
      <Figure title="Time of the best schedule" file="time.svg" name={`Time of the best schedule ${over}`} notes={[...third, `Shades: ${span}, even steps for even factors`]}>
        {range !== null && <Scale low={range.low} high={range.high} />}
        <HeatMap summary={`Time of the best schedule ${over}: ${span}.`} cell={time} {...shared} />
      </Figure>
    </div>
  );
}

const cellOf = (point: SweepPoint | undefined, draw: (point: SweepPoint) => HeatCell): HeatCell | null =>
  point === undefined ? null : draw(point);

interface FigureProps {
  title: string;
  file: string;
  name: string;
  /** What the file says below the map. */
  notes: readonly string[];
  children: ComponentChildren;
}

function Figure({ title, file, name, notes, children }: FigureProps) {
  const box = useRef<HTMLElement>(null);
  const save = (): void => {
    const chart = box.current?.querySelector<SVGSVGElement>(".chart svg");
    if (chart) saveFile(file, "image/svg+xml", svgFile(chart, { title: name, notes }));
  };
  return (
    <section class="card" ref={box}>
      <div class="row figure-head">
        <h2>{title}</h2>
        <button type="button" class="quiet" onClick={save} aria-label={`Save as SVG: ${title}`}>Save as SVG</button>
      </div>
      {children}
    </section>
  );
}

const steps = 6;

/** What shades mean: even steps for even factors. */
function Scale({ low, high }: { low: number; high: number }) {
  const shares = Array.from({ length: steps }, (_, index) => index / (steps - 1));
  return (
    <ul class="legend scale" aria-label="Shades">
      {shares.map((share) => (
        <li key={share}>
          <svg width="14" height="14" aria-hidden="true"><rect class="heat-shade" width="14" height="14" fill-opacity={shadeOpacity(share)} /></svg>
          {text.seconds(low * (high / low) ** share)}
        </li>
      ))}
    </ul>
  );
}

interface AxisChoiceProps {
  axes: readonly Axis[];
  x: number;
  y: number;
  at: readonly number[];
}

/** Which axes are across and up, and at which value of the others. */
export function AxisChoice({ axes, x, y, at }: AxisChoiceProps) {
  const options = axes.map(({ path }, axis) => <option key={axis} value={axis}>{path}</option>);
  const other = axes.findIndex((_, axis) => axis !== x && axis !== y);
  // What was across goes up when the other one is wanted across.
  const setX = (wanted: number): void => setParams({ x: wanted, y: wanted === y ? x : y, at: undefined });
  const setY = (wanted: number): void => setParams({ y: wanted, x: wanted === x ? y : x, at: undefined });
  return (
    <div class="row choices">
      <label>Across <select value={x} onChange={(event) => setX(Number(event.currentTarget.value))}>{options}</select></label>
      <label>Up <select value={y} onChange={(event) => setY(Number(event.currentTarget.value))}>{options}</select></label>
      {other >= 0 && (
        <label>
          {axes[other]!.path}
          <select value={at[other]} onChange={(event) => setParams({ at: event.currentTarget.value }, true)}>
            {axes[other]!.values.map((value, index) => <option key={index} value={index}>{value}</option>)}
          </select>
        </label>
      )}
    </div>
  );
}
