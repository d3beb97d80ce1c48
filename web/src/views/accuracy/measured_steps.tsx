// Training steps that others measured beside what is predicted of them, as the planner was given them: each set, each
// row with its miss, and what the predicted time of one consists of.
import type { ListMeasuredStepsResponse } from "../../../generated/moeplan/v1/planner_service";
import type { ReproducedStep, ReproducedSteps, ReproducedStepSet } from "../../../generated/moeplan/v1/reproduced_steps";
import type { StepPart } from "../../../generated/moeplan/v1/step";
import { call } from "../../api/client";
import { useLoaded } from "../../api/use_call";
import { PagedTable, type SortableColumn } from "../../components/paged_table";
import { Table, type Column } from "../../components/table";
import * as text from "../../format";
import { hrefWith, setParams, type Params } from "../../route";

const shareOf = (share: number | undefined): string => (share === undefined ? "" : text.percent(share));
const rowsOfPage = 25;

export function MeasuredSteps({ params }: { params: Params }) {
  const { data } = useLoaded("measured steps", (signal) => call<ListMeasuredStepsResponse>("PlannerService/ListMeasuredSteps", {}, signal));
  const reproduced = data?.reproduced;
  if (reproduced === undefined || reproduced.rows.length === 0) return null;
  return <Shown reproduced={reproduced} params={params} />;
}

function Shown({ reproduced, params }: { reproduced: ReproducedSteps; params: Params }) {
  const chosen = params["set"] ?? "";
  const rows = reproduced.rows.map((row, index) => ({ row, index })).filter(({ row }) => chosen === "" || row.set === chosen);
  const step = params["step"] === undefined ? undefined : reproduced.rows[Number(params["step"])];
  return (
    <section class="card" aria-labelledby="steps-title">
      <h2 id="steps-title">Training steps that others measured</h2>
      <p class="muted">
        {text.count(reproduced.rows.length)} rows that this planner was given with <code>--measured-steps</code>. Copied: the throughput of the nearest other row of the
        same model and machine.
      </p>
      <Sets sets={reproduced.sets} />
      {step !== undefined && step.parts.length > 0 && <Parts row={step} />}
      <p>
        {chosen === "" ? "All sets, " : `${chosen}, `}the largest miss first unless sorted.{" "}
        {chosen !== "" && <a href={hrefWith({ set: undefined })}>Show all sets</a>}
      </p>
      <Rows rows={rows} params={params} />
    </section>
  );
}

function Sets({ sets }: { sets: readonly ReproducedStepSet[] }) {
  const columns: Column<ReproducedStepSet>[] = [
    { head: "set", cell: ({ set }) => <a href={hrefWith({ set })}>{set}</a> },
    { head: "priced", numeric: true, cell: ({ priced, rows }) => `${text.count(priced)} of ${text.count(rows)}` },
    { head: "mean |error|", numeric: true, cell: ({ meanAbsoluteError }) => shareOf(meanAbsoluteError) },
    { head: "costs alone", numeric: true, cell: ({ unscaledMeanAbsoluteError }) => shareOf(unscaledMeanAbsoluteError) },
    { head: "source's own", numeric: true, cell: ({ peerMeanAbsoluteError }) => shareOf(peerMeanAbsoluteError) },
    { head: "copied", numeric: true, cell: ({ trivialMeanAbsoluteError }) => shareOf(trivialMeanAbsoluteError) },
    { head: "worst", numeric: true, cell: ({ worst }) => shareOf(worst) },
    { head: "bias", numeric: true, cell: ({ bias }) => (bias === undefined ? "" : text.signedPercent(bias)) },
    { head: "in interval", numeric: true, cell: ({ coverage }) => shareOf(coverage) },
    { head: "half-width", numeric: true, cell: ({ halfWidthMedian }) => shareOf(halfWidthMedian) },
    { head: "tau", numeric: true, cell: ({ kendallTau }) => (kendallTau === undefined ? "" : kendallTau.toFixed(2)) },
    { head: "winners named", numeric: true, cell: ({ winnersNamed }) => shareOf(winnersNamed) },
    { head: "memory", numeric: true, cell: ({ memoryMeanAbsoluteError }) => shareOf(memoryMeanAbsoluteError) },
  ];
  return <Table caption="Sets of measured steps; interval: 90 %" columns={columns} rows={sets} keyOf={({ set }) => set} />;
}

type Numbered = { row: ReproducedStep; index: number };
const miss = ({ row }: Numbered): number | undefined => (row.error === undefined ? undefined : Math.abs(row.error));
const isInside = ({ row: { measuredS, lowS, highS } }: Numbered): boolean | undefined =>
  measuredS === undefined || lowS === undefined || highS === undefined ? undefined : measuredS >= lowS && measuredS <= highS;

function Rows({ rows, params }: { rows: readonly Numbered[]; params: Params }) {
  const seconds = (value: number | undefined): string => (value === undefined ? "" : text.seconds(value));
  const columns: SortableColumn<Numbered>[] = [
    {
      id: "case",
      head: "case",
      cell: ({ row, index }) => (row.parts.length > 0 ? <a href={hrefWith({ step: index })}>{row.case}</a> : row.case),
      sortKey: ({ row }) => row.case,
    },
    { id: "measured", head: "measured", numeric: true, cell: ({ row }) => seconds(row.measuredS), sortKey: ({ row }) => row.measuredS },
    { id: "predicted", head: "predicted", numeric: true, cell: ({ row }) => seconds(row.predictedS), sortKey: ({ row }) => row.predictedS },
    { id: "miss", head: "error", numeric: true, cell: ({ row }) => (row.error === undefined ? "" : text.signedPercent(row.error)), sortKey: miss },
    { id: "inside", head: "in the interval", cell: (one) => { const inside = isInside(one); return inside === undefined ? "" : inside ? "yes" : "no"; }, sortKey: (one) => Number(isInside(one)) },
    { id: "reason", head: "remark", cell: ({ row }) => row.reason },
  ];
  return (
    <PagedTable
      caption="Measured steps"
      columns={columns}
      rows={rows}
      keyOf={({ index }) => index}
      sort={params["steps"] ?? "-miss"}
      onSort={(steps) => setParams({ steps }, true)}
      isCurrent={({ index }) => String(index) === params["step"]}
      paging={{ size: rowsOfPage, page: params["stepsPage"] === undefined ? undefined : Number(params["stepsPage"]), onPage: (stepsPage) => setParams({ stepsPage }, true) }}
    />
  );
}

function Parts({ row }: { row: ReproducedStep }) {
  const whole = row.parts.reduce((sum, { exposedS }) => sum + exposedS, 0);
  const columns: Column<StepPart>[] = [
    { head: "part", cell: ({ part }) => part },
    { head: "forward", numeric: true, cell: ({ forwardS }) => (forwardS > 0 ? text.seconds(forwardS) : "") },
    { head: "backward", numeric: true, cell: ({ backwardS }) => (backwardS > 0 ? text.seconds(backwardS) : "") },
    { head: "of the step", numeric: true, cell: ({ exposedS }) => text.seconds(exposedS) },
    { head: "share", numeric: true, cell: ({ exposedS }) => text.percent(exposedS / whole) },
  ];
  return (
    <>
      <div class="row">
        <h3>{row.case}</h3>
        <button type="button" class="quiet" onClick={() => setParams({ step: undefined })}>Close</button>
      </div>
      <p>
        {row.measuredS === undefined ? "" : `Measured ${text.seconds(row.measuredS)}; predicted `}
        {text.seconds(row.unscaledS ?? whole)} from costs alone{row.unscaledS !== undefined && row.predictedS !== undefined && `, ${text.seconds(row.predictedS)} by what its release does to other rows`}.
        {row.reason !== "" && ` ${row.reason}.`}
      </p>
      <Table caption="What the time predicted from costs consists of" columns={columns} rows={row.parts} keyOf={({ part }) => part} />
    </>
  );
}
