// A sweep over one axis: the best time, coloured by its family, beside the runner-up and the baseline.
import { useId, useMemo, useRef } from "preact/hooks";

import type { SweepPoint } from "../../../generated/moeplan/v1/planner_service";
import { familyClass } from "../../charts/colors";
import { Frame, type Scales } from "../../charts/frame";
import { moveCursor } from "../../charts/heat_grid";
import { extent, Line, type Point } from "../../charts/marks";
import { positionsOf } from "../../charts/positions";
import { KeyBox, useReadout } from "../../charts/readout";
import { nearest, shapeName, shapePath } from "../../charts/shapes";
import { saveFile, svgFile } from "../../charts/svg_file";
import * as text from "../../format";
import type { Axis } from "../../sweep/axes";
import { familiesOf, sentenceOf, timeOf } from "./grid";

interface Props {
  axis: Axis;
  points: readonly SweepPoint[];
  onPick: (point: SweepPoint) => void;
}

const pointerReach = 40;

export function LineChart({ axis, points, onPick }: Props) {
  const box = useRef<HTMLElement>(null);
  const hint = useId();
  const { shown: told, pointed, cursor, setCursor, setPointed, walkTo } = useReadout<number>((index) => points[index] !== undefined);
  const { at, kind, numeric } = useMemo(() => positionsOf(axis.values), [axis]);
  const families = useMemo(() => familiesOf(points), [points]);
  const series = useMemo(() => {
    const of = (value: (point: SweepPoint) => number | undefined): Point[] =>
      points
        .map((point, index) => ({ x: at[index]!, y: value(point) ?? Number.NaN }))
        .filter(({ y }) => y > 0)
        .sort((a, b) => a.x - b.x);
    return { best: of(timeOf), runnerUp: of(({ runnerUp }) => runnerUp?.predictedTimeS), baseline: of(({ baselineTimeS }) => baselineTimeS) };
  }, [points, at]);
  const times = [...series.best, ...series.runnerUp, ...series.baseline].map(({ y }) => y);
  const yDomain = extent(times, "log", 0.1);
  // One decade has too few ticks for a logarithm.
  const yKind = yDomain[1] / yDomain[0] > 8 ? "log" : "linear";
  const xDomain = kind === "log2" ? extent(at, "log", 0.05) : extent(at, "linear", 0.05);
  const marks = families.map(({ family }) => ({
    family,
    places: points.flatMap((point, index) => (point.row?.best?.schedule === family ? [{ x: at[index]!, y: timeOf(point)! }] : [])),
  }));
  const hover = (where: { x: number; scales: Scales } | null): void => {
    if (where === null) return setPointed(null);
    const places = points.map((_, index) => ({ x: where.scales.x(at[index]!), y: 0 }));
    setPointed(nearest(places, where.scales.x(where.x), 0, pointerReach));
  };
  const open = (point: SweepPoint | undefined): void => {
    if (point?.row?.best !== undefined) onPick(point);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const next = moveCursor({ x: cursor ?? 0, y: 0 }, event.key, points.length, 1);
    if (event.key === "Enter" || event.key === " ") open(points[told ?? 0]);
    else if (next === null) return;
    else walkTo(next.x);
    event.preventDefault();
  };
  const name = `Time of the best schedule over ${axis.path}`;
  const format = (value: number): string => (numeric ? String(Number(value.toPrecision(6))) : axis.values[value] ?? "");
  const save = (): void => {
    const chart = box.current?.querySelector<SVGSVGElement>(".chart svg");
    if (chart) saveFile("time.svg", "image/svg+xml", svgFile(chart, { title: name, notes: [`${families.map(({ family }) => `${shapeName(family)}: ${family} is best`).join(", ")}; dashes: baseline; dots: runner-up of another family`] }));
  };
  return (
    <section class="card" ref={box}>
      <div class="row figure-head">
        <h2>Time by {axis.path}</h2>
        <button type="button" class="quiet" onClick={save}>Save as SVG</button>
      </div>
      <ul class="legend">
        {families.map(({ family }) => (
          <li key={family}>
            <svg class={`shape ${familyClass(family)}`} width="12" height="12" viewBox="-6 -6 12 12" aria-hidden="true"><path d={shapePath(family, [{ x: 0, y: 0 }], 4)} /></svg>
            best: {family}
          </li>
        ))}
        <li><svg width="24" height="10" aria-hidden="true"><path class="line second" d="M0,5h24" /></svg> baseline</li>
        <li><svg width="24" height="10" aria-hidden="true"><path class="line summary" d="M0,5h24" /></svg> runner-up of another family</li>
      </ul>
      <div class={pointed === null ? undefined : "clickable"} onClick={() => pointed !== null && open(points[pointed])}>
        <KeyBox class="line-box" kind="line chart" summary={`${name}: arrow keys walk its values`} told={hint} onKeyDown={onKeyDown} onFocus={() => setCursor(cursor ?? 0)}>
          <Frame
            summary={`${name}: ${families.map(({ family, points: count }) => `${family} is best at ${text.count(count)} of ${text.count(points.length)} points`).join(", ")}; the table below has each point.`}
            x={{ label: axis.path, domain: xDomain, kind, format }}
            y={{ label: "time", domain: yDomain, kind: yKind, format: text.seconds }}
            height={340}
            onHover={hover}
          >
            {(scales) => (
              <>
                <Line scales={scales} points={series.baseline} class="second" />
                <Line scales={scales} points={series.runnerUp} class="summary" />
                <Line scales={scales} points={series.best} class="best-time" />
                {marks.map(({ family, places }) => (
                  <path key={family} class={`shape ${familyClass(family)}`} d={shapePath(family, places.map(({ x, y }) => ({ x: scales.x(x), y: scales.y(y) })), 5)} />
                ))}
                {told !== null && <line class="cursor" x1={scales.x(at[told]!)} x2={scales.x(at[told]!)} y2={scales.height} />}
              </>
            )}
          </Frame>
        </KeyBox>
      </div>
      <p class="told" id={hint} aria-live="polite">
        {told === null
          ? <span class="muted">Point at a value, or walk them with the arrow keys; a click or Enter plans it. The table below has them all.</span>
          : `${axis.path} ${axis.values[told]}: ${sentenceOf(points[told]!)}`}
      </p>
    </section>
  );
}
