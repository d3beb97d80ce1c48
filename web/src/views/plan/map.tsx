// Which schedule wins where: sequence length against another field, priced when asked for, and again where an address says so.
import { useCallback, useEffect, useId, useMemo, useState } from "preact/hooks";

import type { SweepPoint, SweepRequest } from "../../../generated/moeplan/v1/planner_service";
import { familyClass } from "../../charts/colors";
import { HeatMap } from "../../charts/heat_map";
import { WarningList } from "../../components/notes";
import { Table } from "../../components/table";
import { describePlan } from "../../describe";
import * as text from "../../format";
import { hrefOf, setParams, type Params } from "../../route";
import { axisText } from "../../sweep/axes";
import { shortFamily } from "../../short_family";
import { type Band, defaultBand, isNearTie, marginOf } from "../../sweep/near_tie";
import { Progress } from "../../sweep/progress";
import { useSweep, type Grid, type Swept } from "../../sweep/use_sweep";
import { isWorkloadPath, type WorkloadJson } from "../../workload";
import { atPoint, defaultValues, mostX, mostY, parseValues, xPath, yChoices } from "./map_axes";
import { cellOf, speedupOf, winners } from "./map_cells";
import type { Question } from "./question";
import { valueAt, withValue } from "./workload_form";

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
  swept: Swept;
  band: Band;
  workload: WorkloadJson;
  onPick: ((x: number, y: number) => void) | undefined;
}

function Answer({ swept, band, workload, onPick }: AnswerProps) {
  const { points, notes, question: { axes } } = swept;
  const [{ path: yPath, values: yValues }, { values: xValues }] = [axes[0]!, axes[1]!];
  const cell = useCallback((x: number, y: number) => {
    const point = points[y * xValues.length + x];
    return point === undefined ? null : cellOf(point, band);
  }, [points, xValues, band.share, band.intervals]);
  const [x, y] = [xValues.indexOf(String(valueAt(workload, xPath))), yValues.indexOf(String(valueAt(workload, yPath)))];
  const won = winners(points);
  const whatIf = hrefOf("what-if", {
    profile: swept.profileName,
    version: swept.profileVersion,
    workload: JSON.stringify(workload),
    axis1: axisText(axes[1]!),
    axis2: axisText(axes[0]!),
    extrapolate: swept.question.request.extrapolate ? "1" : undefined,
  });
  return (
    <>
      <Winners points={points} />
      <HeatMap
        summary={`Best schedule over ${xPath} and ${yPath}: ${won.map(({ family, count }) => `${family} at ${count} of ${points.length} points`).join(", ")}.`}
        xLabel={xPath}
        yLabel={yPath}
        xValues={xValues}
        yValues={yValues}
        cell={cell}
        picked={x >= 0 && y >= 0 ? { x, y } : null}
        {...(onPick === undefined ? {} : { onPick })}
      />
      {onPick === undefined && (
        <p class="muted">{yPath} belongs to the profile, not to the workload: its points cannot be opened as a plan. <a href={whatIf}>What-if</a> says what each is priced from.</p>
      )}
      <WarningList warnings={notes} />
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

/** The map's axes, as they are typed. */
interface Draft {
  yPath: string;
  xText: string;
  yText: string;
}

const textOf = (workload: WorkloadJson, path: string): string => defaultValues(workload, path).join(", ");
const parsed = ({ xText, yText }: Draft) => ({ xs: parseValues(xText, mostX), ys: parseValues(yText, mostY) });

/**
 * Of the address: `mapY` the field, `mapXs` and `mapYs` the values, and where one of them is there the map is drawn; `band`
 * the per cent that count as a tie beyond what the planner holds for one, `ties` "intervals": or intervals that meet.
 */
export function MapSection({ workload, question, params }: Props) {
  const id = useId();
  const drawn = params["mapY"] !== undefined || params["mapXs"] !== undefined || params["mapYs"] !== undefined;
  const asked: Draft = {
    yPath: params["mapY"] ?? "layer.batch",
    xText: params["mapXs"] ?? textOf(workload, xPath),
    yText: params["mapYs"] ?? textOf(workload, params["mapY"] ?? "layer.batch"),
  };
  const askedText = JSON.stringify(asked);
  const [draft, setDraft] = useState(asked);
  useEffect(() => setDraft(asked), [askedText]);
  const bandText = params["band"] ?? "";
  const band: Band = { share: Number(bandText) >= 0 ? Number(bandText) / 100 : defaultBand.share, intervals: params["ties"] === "intervals" };

  const { xs: askedXs, ys: askedYs } = parsed(asked);
  const fixed = withValue(workload, xPath, undefined);
  const base = isWorkloadPath(asked.yPath) ? withValue(fixed, asked.yPath, undefined) : fixed;
  // What the axes set is no part of the question: a point that is opened leaves the map as it is.
  const key = drawn && "values" in askedXs && "values" in askedYs ? JSON.stringify([question, base, asked]) : null;
  const grid = useMemo<Grid | null>(() => {
    if (!("values" in askedXs) || !("values" in askedYs)) return null;
    const axes = [{ path: asked.yPath, values: askedYs.values.map(String) }, { path: xPath, values: askedXs.values.map(String) }];
    return { axes, request: { ...question, workload: workload as unknown as SweepRequest["workload"], axes: axes.map(axisText) } };
  }, [key]);
  const { swept, again, cancel } = useSweep(key, grid);
  const [keptOpen, setOpen] = useState(drawn);

  const { yPath } = draft;
  const { xs, ys } = parsed(draft);
  const ask = (event: Event): void => {
    event.preventDefault();
    if ("problem" in xs || "problem" in ys) return;
    if (drawn && JSON.stringify(draft) === askedText) again();
    else setParams({ mapY: yPath, mapXs: draft.xText, mapYs: draft.yText });
  };
  const onPick = (x: number, y: number): void => {
    if (swept === null) return;
    const [up, across] = [swept.question.axes[0]!, swept.question.axes[1]!];
    const point = { [across.path]: Number(across.values[x]), [up.path]: Number(up.values[y]) };
    setParams({ workload: JSON.stringify(atPoint(workload, point)), candidate: undefined, run: undefined });
  };
  const axisError = (index: number): string => {
    const error = swept?.error;
    return error && JSON.stringify(draft) === askedText && error.field === `axes[${index}]` ? `found ${error.found}, expected ${error.expected}` : "";
  };
  const problemX = "problem" in xs ? xs.problem : axisError(1);
  const problemY = "problem" in ys ? ys.problem : axisError(0);
  const running = swept?.state === "running" || swept?.state === "waiting";
  const options = yChoices.some(({ path }) => path === yPath) ? yChoices : [{ path: yPath, label: yPath }, ...yChoices];
  const input = (label: string, value: string, problem: string, slug: string, onText: (typed: string) => void, placeholder = "") => (
    <div class="field">
      <label for={`${id}-${slug}`}>{label}</label>
      <input
        id={`${id}-${slug}`}
        type="text"
        value={value}
        placeholder={placeholder}
        spellcheck={false}
        {...(problem === "" ? {} : { "aria-invalid": true, "aria-describedby": `${id}-${slug}-problem` })}
        onInput={(event) => onText(event.currentTarget.value)}
      />
      {problem !== "" && <span class="field-problem" id={`${id}-${slug}-problem`}>{problem}</span>}
    </div>
  );

  return (
    <section class="card" aria-labelledby="plan-map">
      <details open={keptOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary><h2 id="plan-map">Which schedule wins where</h2></summary>
        <form class="map-form" aria-label="Axes of the map" onSubmit={ask} noValidate>
          {input("Sequence lengths, tokens", draft.xText, problemX, "x", (xText) => setDraft((before) => ({ ...before, xText })))}
          <div class="field">
            <label for={`${id}-path`}>Against</label>
            <select id={`${id}-path`} value={yPath} onChange={(event) => { const path = event.currentTarget.value; setDraft((before) => ({ ...before, yPath: path, yText: textOf(workload, path) })); }}>
              {options.map(({ path, label }) => <option key={path} value={path}>{label}</option>)}
            </select>
          </div>
          {input("Its values", draft.yText, problemY, "y", (yText) => setDraft((before) => ({ ...before, yText })))}
          {input("Also a tie below, %", bandText, Number(bandText) >= 0 ? "" : "not a number of at least 0", "band", (typed) => setParams({ band: typed }, true), "only what cannot be told apart")}
          <label class="check">
            <input type="checkbox" checked={band.intervals} onChange={(event) => setParams({ ties: event.currentTarget.checked ? "intervals" : undefined }, true)} />
            Also where 90 % intervals meet
          </label>
          <div class="row">
            <button type="submit" disabled={running || "problem" in xs || "problem" in ys}>Draw the map</button>
          </div>
        </form>
        {swept === null
          ? <p class="muted">Each point is a search of its own: it is priced when you ask for it.</p>
          : <Progress swept={swept} cancel={cancel} again={again} />}
        {swept !== null && swept.points.length > 0 && (
          <Answer swept={swept} band={band} workload={workload} onPick={isWorkloadPath(swept.question.axes[0]!.path) ? onPick : undefined} />
        )}
      </details>
    </section>
  );
}
