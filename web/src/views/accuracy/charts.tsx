// Predicted against measured, and the error over time. Ten thousand runs are one path a family.
import { useMemo, useState } from "preact/hooks";

import type { Run } from "../../../generated/moeplan/v1/planner_service";
import { familyClass } from "../../charts/colors";
import { Frame, type Scales } from "../../charts/frame";
import { extent, Line, type Point } from "../../charts/marks";
import { describePlan } from "../../describe";
import * as text from "../../format";
import { setParams } from "../../route";
import { signedError } from "../../signed_error";
import { nearest, shapePath, shapeName } from "../../charts/shapes";
import { mediansOverTime, scheduleOf, type ErrorSummary } from "./statistics";
import { timeAxis } from "./time_axis";

const tolerance = 0.1;
const pointerReach = 14;
/** So many marks lie on one another that their outlines would hide their colours. */
const dense = 500;

function sentence(run: Run): string {
  const plan = run.plan === undefined ? "" : describePlan(run.plan);
  return `Run ${run.run}: ${plan}; predicted ${text.seconds(run.predictedTimeS)}, measured ${text.seconds(run.measuredTimeS)}, ${text.signedPercent(signedError(run))}`;
}

export function Legend({ schedules }: { schedules: readonly string[] }) {
  return (
    <ul class="legend">
      {schedules.map((schedule) => (
        <li key={schedule}>
          <svg class={`shape ${familyClass(schedule)}`} width="12" height="12" viewBox="-6 -6 12 12" role="img" aria-label={shapeName(schedule)}>
            <path d={shapePath(schedule, [{ x: 0, y: 0 }], 4)} />
          </svg>
          {schedule}
        </li>
      ))}
    </ul>
  );
}

interface MarksProps {
  scales: Scales;
  groups: readonly { schedule: string; points: Point[] }[];
  marked: Point | null;
}

function Marks({ scales, groups, marked }: MarksProps) {
  const many = groups.reduce((all, { points }) => all + points.length, 0) > dense;
  const placed = (point: Point) => ({ x: scales.x(point.x), y: scales.y(point.y) });
  return (
    <>
      {groups.map(({ schedule, points }) => (
        <path key={schedule} class={`shape ${many ? "dense " : ""}${familyClass(schedule)}`} d={shapePath(schedule, points.map(placed), many ? 2.6 : 3.6)} />
      ))}
      {marked !== null && <circle class="marked-run" r={8} cx={scales.x(marked.x)} cy={scales.y(marked.y)} />}
    </>
  );
}

interface RunChartProps {
  runs: readonly Run[];
  summary: ErrorSummary;
  /** Number of the run that is shown below. */
  current: number | null;
}

/** What two charts share: points by family, the nearest under the pointer, which a click chooses. */
function useRunPoints(runs: readonly Run[], pointOf: (run: Run) => Point) {
  const [hovered, setHovered] = useState<Run | null>(null);
  const points = useMemo(() => runs.map(pointOf), [runs]);
  const groups = useMemo(() => {
    const found = new Map<string, Point[]>();
    runs.forEach((run, index) => {
      const schedule = scheduleOf(run);
      const group = found.get(schedule);
      if (group === undefined) found.set(schedule, [points[index]!]);
      else group.push(points[index]!);
    });
    return [...found].map(([schedule, members]) => ({ schedule, points: members }));
  }, [points]);
  const onHover = (at: { x: number; y: number; scales: Scales } | null): void => {
    if (at === null) return setHovered(null);
    const { scales } = at;
    const places = points.map((point) => ({ x: scales.x(point.x), y: scales.y(point.y) }));
    setHovered(runs[nearest(places, scales.x(at.x), scales.y(at.y), pointerReach)] ?? null);
  };
  return { groups, hovered, onHover };
}

function Told({ run }: { run: Run | null }) {
  return <p class="told">{run === null ? <span class="muted">Point at a run; a click opens it. The table below has them all.</span> : sentence(run)}</p>;
}

export function PredictedAgainstMeasured({ runs, summary, current }: RunChartProps) {
  const { groups, hovered, onHover } = useRunPoints(runs, (run) => ({ x: run.predictedTimeS, y: run.measuredTimeS }));
  const domain = useMemo(() => extent(runs.flatMap((run) => [run.predictedTimeS, run.measuredTimeS]), "log", 0.2), [runs]);
  const marked = hovered ?? runs.find(({ run }) => run === current) ?? null;
  const diagonal = (over: number): Point[] => domain.map((x) => ({ x, y: x / over }));
  return (
    <section class="card">
      <h2>Predicted against measured</h2>
      <div class={hovered === null ? undefined : "clickable"} onClick={() => hovered !== null && setParams({ run: hovered.run })}>
        <Frame
          summary={`Measured over predicted time of ${text.count(runs.length)} runs, both logarithmic: the median error is ${text.percent(summary.absoluteP50)}, 95 of 100 are within ${text.percent(summary.absoluteP95)}.`}
          x={{ label: "predicted time", domain, kind: "log", format: text.seconds }}
          y={{ label: "measured time", domain, kind: "log", format: text.seconds }}
          height={360}
          onHover={onHover}
        >
          {(scales) => (
            <>
              <Line scales={scales} points={diagonal(1)} class="zero" />
              <Line scales={scales} points={diagonal(1 + tolerance)} class="summary" />
              <Line scales={scales} points={diagonal(1 - tolerance)} class="summary" />
              <Marks scales={scales} groups={groups} marked={marked === null ? null : { x: marked.predictedTimeS, y: marked.measuredTimeS }} />
            </>
          )}
        </Frame>
      </div>
      <Told run={hovered} />
      <p class="muted">On the solid line: as predicted. On the broken ones: predicted 10 % more or less than measured.</p>
    </section>
  );
}

export function ErrorOverTime({ runs, summary, current }: RunChartProps) {
  const timed = useMemo(() => runs.filter(({ createdAt }) => !Number.isNaN(Date.parse(createdAt))), [runs]);
  const times = useMemo(() => timed.map(({ createdAt }) => Date.parse(createdAt)), [timed]);
  const axis = useMemo(() => {
    const [low, high] = extent(times, "linear", 0);
    return timeAxis(low, high);
  }, [times]);
  const pointOf = (run: Run): Point => ({ x: axis.at(Date.parse(run.createdAt)), y: signedError(run) });
  const { groups, hovered, onHover } = useRunPoints(timed, pointOf);
  const domain = useMemo(() => extent([-tolerance, tolerance, ...timed.map(signedError)], "linear", 0.05), [timed]);
  const medians = useMemo(
    () => mediansOverTime(timed.map((run) => ({ atMs: Date.parse(run.createdAt), error: signedError(run) })), 40)
      .map(({ atMs, error }) => ({ x: axis.at(atMs), y: error })),
    [timed, axis],
  );
  if (timed.length === 0) return null;
  const marked = hovered ?? timed.find(({ run }) => run === current) ?? null;
  const level = (y: number): Point[] => axis.domain.map((x) => ({ x, y }));
  return (
    <section class="card">
      <h2>Error over time</h2>
      <div class={hovered === null ? undefined : "clickable"} onClick={() => hovered !== null && setParams({ run: hovered.run })}>
        <Frame
          summary={`Error of ${text.count(timed.length)} runs over the time they were stored; its median over all is ${text.signedPercent(summary.bias)}.`}
          x={{ label: axis.label, domain: axis.domain, kind: "linear", format: axis.format, tickPx: axis.tickPx }}
          y={{ label: "(predicted − measured) / measured", domain, kind: "linear", format: text.percent }}
          height={360}
          onHover={onHover}
        >
          {(scales) => (
            <>
              <Line scales={scales} points={level(0)} class="zero" />
              <Line scales={scales} points={level(tolerance)} class="summary" />
              <Line scales={scales} points={level(-tolerance)} class="summary" />
              <Marks scales={scales} groups={groups} marked={marked === null ? null : pointOf(marked)} />
              <Line scales={scales} points={medians} class="medians" />
            </>
          )}
        </Frame>
      </div>
      <Told run={hovered} />
      <p class="muted">{medians.length > 1 ? "The line joins medians of runs that lie next to each other. " : ""}Broken lines: ±10 %.</p>
    </section>
  );
}
