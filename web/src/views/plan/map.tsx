// Which schedule wins where: sequence length against another field, priced when asked for.
import { useCallback, useEffect, useId, useRef, useState } from "preact/hooks";

import type { SweepPoint, SweepResponse } from "../../../generated/moeplan/v1/planner_service";
import { call, CallError } from "../../api/client";
import { familyClass } from "../../charts/colors";
import { HeatMap } from "../../charts/heat_map";
import { ErrorNote, WarningList } from "../../components/notes";
import { Table } from "../../components/table";
import { describePlan } from "../../describe";
import * as text from "../../format";
import { setParams, type Params } from "../../route";
import { shortFamily } from "../../short_family";
import { type Band, defaultBand, isNearTie, marginOf } from "../../sweep/near_tie";
import { atPoint, axisText, defaultValues, isOfWorkload, mostX, mostY, parseValues, xPath, yChoices } from "./map_axes";
import { cellOf, speedupOf, winners } from "./map_cells";
import type { Question } from "./question";
import { valueAt, withValue, type WorkloadJson } from "./workload_form";

interface Asked {
  /** What the map is of, but for the fields that its axes set. */
  key: string;
  yPath: string;
  xValues: number[];
  yValues: number[];
}

type Run =
  | { state: "none" }
  | { state: "running"; asked: Asked }
  | { state: "cancelled" }
  | { state: "failed"; asked: Asked; error: CallError }
  | { state: "done"; asked: Asked; answer: SweepResponse };

function useRun(): [Run, (asked: Asked, request: object) => void, () => void] {
  const [run, setRun] = useState<Run>({ state: "none" });
  const controller = useRef<AbortController | null>(null);
  useEffect(() => () => controller.current?.abort(), []);
  const start = (asked: Asked, request: object): void => {
    controller.current?.abort();
    const mine = new AbortController();
    controller.current = mine;
    setRun({ state: "running", asked });
    call<SweepResponse>("PlannerService/Sweep", request, mine.signal).then(
      (answer) => { if (!mine.signal.aborted) setRun({ state: "done", asked, answer }); },
      (problem: unknown) => {
        if (mine.signal.aborted) return;
        setRun({ state: "failed", asked, error: problem instanceof CallError ? problem : new CallError(String(problem), "UNKNOWN") });
      },
    );
  };
  const cancel = (): void => {
    controller.current?.abort();
    setRun({ state: "cancelled" });
  };
  return [run, start, cancel];
}

function Winners({ points }: { points: readonly SweepPoint[] }) {
  return (
    <ul class="legend">
      {winners(points).map(({ family, count }) => (
        <li key={family}><span class={`swatch ${familyClass(family)}`} aria-hidden="true" />{shortFamily(family)}: {family}, {count} of {points.length}</li>
      ))}
      <li><span class="map-key-hatch" aria-hidden="true" />near a tie</li>
    </ul>
  );
}

interface AnswerProps {
  asked: Asked;
  answer: SweepResponse;
  band: Band;
  workload: WorkloadJson;
  onPick: ((x: number, y: number) => void) | undefined;
}

function Answer({ asked, answer, band, workload, onPick }: AnswerProps) {
  const { xValues, yValues, yPath } = asked;
  const { points } = answer;
  const cell = useCallback((x: number, y: number) => {
    const point = points[y * xValues.length + x];
    return point === undefined ? null : cellOf(point, band);
  }, [points, xValues, band.share, band.intervals]);
  const [x, y] = [xValues.indexOf(Number(valueAt(workload, xPath))), yValues.indexOf(Number(valueAt(workload, yPath)))];
  const won = winners(points);
  return (
    <>
      <Winners points={points} />
      <HeatMap
        summary={`Best schedule over ${xPath} and ${yPath}: ${won.map(({ family, count }) => `${family} at ${count} of ${points.length} points`).join(", ")}.`}
        xLabel={xPath}
        yLabel={yPath}
        xValues={xValues.map(String)}
        yValues={yValues.map(String)}
        cell={cell}
        picked={x >= 0 && y >= 0 ? { x, y } : null}
        {...(onPick === undefined ? {} : { onPick })}
      />
      {onPick === undefined && <p class="muted">{yPath} belongs to the profile, not to the workload: its points cannot be opened as a plan.</p>}
      {answer.notes.length > 0 && <WarningList warnings={answer.notes} />}
      <details>
        <summary>As a table</summary>
        <Table
          caption="Best schedule by point"
          rows={points}
          keyOf={(_, index) => index}
          columns={[
            { head: "Sequence, tokens", numeric: true, cell: ({ row }) => String(row?.fields?.[xPath] ?? "") },
            { head: yPath, numeric: true, cell: ({ row }) => String(row?.fields?.[yPath] ?? "") },
            { head: "Best", cell: ({ row }) => (row?.best ? describePlan(row.best) : row?.reason ?? "") },
            { head: "Predicted", numeric: true, cell: ({ row }) => (row?.best ? text.seconds(row.best.predictedTimeS) : "") },
            { head: "Runner-up", cell: ({ runnerUp }) => (runnerUp ? describePlan(runnerUp) : "") },
            { head: "Behind by", numeric: true, cell: (point) => text.percent(marginOf(point) ?? NaN) },
            { head: "Near a tie", cell: (point) => (isNearTie(point, band) ? "yes" : "") },
            { head: "Over baseline", numeric: true, cell: (point) => text.factor(speedupOf(point) ?? NaN) },
          ]}
        />
      </details>
    </>
  );
}

interface Props {
  workload: WorkloadJson;
  question: Question;
  params: Params;
}

/** Of the address: `mapY` the field, `mapXs` and `mapYs` the values, `band` the per cent that count as a tie, `ties` "intervals": or intervals that meet. */
export function MapSection({ workload, question, params }: Props) {
  const [run, start, cancel] = useRun();
  const id = useId();
  const yPath = params["mapY"] ?? "layer.batch";
  const xText = params["mapXs"] ?? defaultValues(workload, xPath).join(", ");
  const yText = params["mapYs"] ?? defaultValues(workload, yPath).join(", ");
  const bandText = params["band"] ?? String(defaultBand.share * 100);
  const band: Band = { share: Number(bandText) >= 0 ? Number(bandText) / 100 : defaultBand.share, intervals: params["ties"] === "intervals" };
  const xs = parseValues(xText, mostX);
  const ys = parseValues(yText, mostY);
  const fixed = withValue(workload, xPath, undefined);
  const base = isOfWorkload(yPath) ? withValue(fixed, yPath, undefined) : fixed;
  const key = JSON.stringify([question, base, yPath, xText, yText]);
  const [keptOpen, setOpen] = useState(params["mapY"] !== undefined || params["mapXs"] !== undefined || params["mapYs"] !== undefined);

  const ask = (event: Event): void => {
    event.preventDefault();
    if ("problem" in xs || "problem" in ys) return;
    const asked: Asked = { key, yPath, xValues: xs.values, yValues: ys.values };
    setParams({ mapY: yPath, mapXs: xText, mapYs: yText }, true);
    start(asked, { ...question, workload, axes: [axisText(yPath, ys.values), axisText(xPath, xs.values)] });
  };
  const onPick = (x: number, y: number): void => {
    if (run.state !== "done") return;
    const point = { [xPath]: run.asked.xValues[x]!, [run.asked.yPath]: run.asked.yValues[y]! };
    setParams({ workload: JSON.stringify(atPoint(workload, point)), candidate: undefined, run: undefined });
  };
  const axisError = (index: number): string => (run.state === "failed" && run.asked.key === key && run.error.field === `axes[${index}]` ? `found ${run.error.found}, expected ${run.error.expected}` : "");
  const problemX = "problem" in xs ? xs.problem : axisError(1);
  const problemY = "problem" in ys ? ys.problem : axisError(0);
  const options = yChoices.some(({ path }) => path === yPath) ? yChoices : [{ path: yPath, label: yPath }, ...yChoices];
  const input = (name: string, label: string, value: string, problem: string, slug: string) => (
    <div class="field">
      <label for={`${id}-${slug}`}>{label}</label>
      <input
        id={`${id}-${slug}`}
        type="text"
        value={value}
        spellcheck={false}
        {...(problem === "" ? {} : { "aria-invalid": true, "aria-describedby": `${id}-${slug}-problem` })}
        onChange={(event) => setParams({ [name]: event.currentTarget.value }, true)}
      />
      {problem !== "" && <span class="field-problem" id={`${id}-${slug}-problem`}>{problem}</span>}
    </div>
  );

  return (
    <section class="card" aria-labelledby="plan-map">
      <details open={keptOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary><h2 id="plan-map">Which schedule wins where</h2></summary>
        <form class="map-form" aria-label="Axes of the map" onSubmit={ask} noValidate>
          {input("mapXs", "Sequence lengths, tokens", xText, problemX, "x")}
          <div class="field">
            <label for={`${id}-path`}>Against</label>
            <select id={`${id}-path`} value={yPath} onChange={(event) => setParams({ mapY: event.currentTarget.value, mapYs: undefined }, true)}>
              {options.map(({ path, label }) => <option key={path} value={path}>{label}</option>)}
            </select>
          </div>
          {input("mapYs", "Its values", yText, problemY, "y")}
          {input("band", "Near a tie below, %", bandText, Number(bandText) >= 0 ? "" : "not a number of at least 0", "band")}
          <label class="check">
            <input type="checkbox" checked={band.intervals} onChange={(event) => setParams({ ties: event.currentTarget.checked ? "intervals" : undefined }, true)} />
            Also where 90 % intervals meet
          </label>
          <div class="row">
            <button type="submit" disabled={run.state === "running" || "problem" in xs || "problem" in ys}>Draw the map</button>
            {run.state === "running" && <button type="button" onClick={cancel}>Cancel</button>}
          </div>
        </form>
        <p role="status" class="muted">
          {run.state === "running" && `Pricing ${run.asked.xValues.length * run.asked.yValues.length} points …`}
          {run.state === "cancelled" && "Cancelled."}
          {run.state === "none" && "Each point is a search of its own: it is priced when you ask for it."}
          {run.state === "done" && run.asked.key !== key && "This map is of another question; draw it again."}
        </p>
        {run.state === "failed" && <ErrorNote error={run.error} />}
        {run.state === "done" && (
          <Answer asked={run.asked} answer={run.answer} band={band} workload={workload} onPick={isOfWorkload(run.asked.yPath) ? onPick : undefined} />
        )}
      </details>
    </section>
  );
}
