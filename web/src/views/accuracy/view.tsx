// Predictions against the clock: runs that are stored, which are not all that were reported.
import { useMemo, useRef } from "preact/hooks";

import type { ListRunsResponse, Run } from "../../../generated/moeplan/v1/planner_service";
import { callAll } from "../../api/client";
import { useLoaded } from "../../api/use_call";
import { useArrival } from "../../components/arrival";
import { Command, EmptyNote, ErrorNote } from "../../components/notes";
import { ProfileField, useProfileNames } from "../../components/profile_field";
import * as text from "../../format";
import { hrefOf, setParams, type Params, type ViewProps } from "../../route";
import { ErrorOverTime, Legend, PredictedAgainstMeasured } from "./charts";
import { MeasuredSteps } from "./measured_steps";
import { RunDetails } from "./run_details";
import { comparable, profileOf, scheduleOf, summariesBy, summarize } from "./statistics";
import { Groups, Inside, OfRun, RunTable } from "./tables";
import "../../charts/shapes.css";
import "./view.css";

const mostRuns = 10_000;
const legend = "bias: median of the signed error; in interval: measured within the 90 % interval that was predicted";

export function AccuracyView({ params }: ViewProps) {
  const profile = params["profile"] ?? "";
  const schedule = params["schedule"] ?? "";
  const names = useProfileNames();
  const { data: last, isOld, error, loading, reload } = useLoaded(`runs ${profile}`, (signal) =>
    callAll<Run, ListRunsResponse>("PlannerService/ListRuns", { profileName: profile }, ({ runs }) => runs, mostRuns, signal));
  const data = isOld ? null : last;
  const schedules = useMemo(() => summariesBy(data ?? [], scheduleOf).map(({ key }) => key), [data]);
  const chosen = useMemo(() => (data ?? []).filter((run) => schedule === "" || scheduleOf(run) === schedule), [data, schedule]);
  const heading = useRef<HTMLHeadingElement>(null);
  useArrival(params["run"] ?? null, () => heading.current);
  // A link may name what is not among the runs now.
  const options = schedule === "" || schedules.includes(schedule) ? schedules : [schedule, ...schedules];

  return (
    <>
      <div class="row filters">
        <ProfileField names={names.data ?? []} value={profile} none="all" onChange={(name) => setParams({ profile: name, run: undefined })} />
        <label>
          Schedule
          <select value={schedule} onChange={(event) => setParams({ schedule: event.currentTarget.value })}>
            <option value="">all</option>
            {options.map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
        </label>
        <button type="button" disabled={loading} onClick={reload}>Load again</button>
      </div>
      {error !== null && (data === null || error.code !== "UNREACHABLE") && <ErrorNote error={error} />}
      {data === null && loading && <p class="muted" role="status">Loading runs …</p>}
      {params["run"] !== undefined && (/^[1-9]\d*$/.test(params["run"])
        ? <RunDetails number={params["run"]} heading={heading} />
        : <ErrorNote message={`The address names run ${params["run"]}, which is no run's number.`} />)}
      {data !== null && (data.length === 0 ? <NoRuns profile={profile} /> : <Shown all={data} chosen={chosen} schedule={schedule} params={params} />)}
      <MeasuredSteps params={params} />
    </>
  );
}

interface ShownProps {
  all: readonly Run[];
  chosen: readonly Run[];
  schedule: string;
  params: Params;
}

function Shown({ all, chosen, schedule, params }: ShownProps) {
  const runs = useMemo(() => comparable(chosen), [chosen]);
  const summary = useMemo(() => summarize(runs), [runs]);
  const current = params["run"] === undefined ? null : Number(params["run"]);
  const table = useRef<HTMLDetailsElement>(null);
  useArrival(params["sort"] === undefined ? null : "table", () => table.current?.querySelector("summary"));
  if (runs.length === 0) {
    return (
      <EmptyNote title="No run to compare">
        <p>
          None of the {text.count(all.length)} runs {schedule === "" ? "has both times" : `is of schedule ${schedule}`}.{" "}
          <a href={hrefOf("accuracy", { ...params, schedule: undefined })}>Show all schedules</a>
        </p>
      </EmptyNote>
    );
  }
  return (
    <>
      <p>
        {runs.length === 1 ? "1 run" : `${text.count(runs.length)} runs`}{all.length === mostRuns && " (the newest of them; older ones are left out)"}: median error{" "}
        <strong><OfRun run={summary.runOf.absoluteP50}>{text.percent(summary.absoluteP50)}</OfRun></strong>, 95th percentile{" "}
        <OfRun run={summary.runOf.absoluteP95}>{text.percent(summary.absoluteP95)}</OfRun>, bias{" "}
        <OfRun run={summary.runOf.bias}>{text.signedPercent(summary.bias)}</OfRun>, in the 90 % interval <Inside summary={summary} narrowed={{}} />.
        {chosen.length > runs.length && ` ${text.count(chosen.length - runs.length)} more lack one of the two times.`}
      </p>
      <p class="muted">Each figure leads to the run that it is of, a median of an even number to the lower of the two in the middle. Of the runs that are reported, the planner keeps one a minute of each plan, and 60 a minute in all; kept ones are what counts here.</p>
      <Legend schedules={summariesBy(runs, scheduleOf).map(({ key }) => key)} />
      <div class="pair">
        <PredictedAgainstMeasured runs={runs} summary={summary} current={current} />
        <ErrorOverTime runs={runs} summary={summary} current={current} />
      </div>
      <div class="pair">
        <section class="card">
          <h2>By schedule</h2>
          <Groups caption={`Error by schedule; ${legend}`} head="schedule" runs={runs} keyOf={scheduleOf} paramsOfKey={(key) => ({ schedule: key })} />
        </section>
        <section class="card">
          <h2>By profile</h2>
          <Groups
            caption={`Error by profile; ${legend}`}
            head="profile"
            runs={runs}
            keyOf={profileOf}
            paramsOfKey={(key) => ({ profile: runs.find((run) => profileOf(run) === key)?.profileName ?? "" })}
          />
        </section>
      </div>
      <details ref={table} open={params["sort"] !== undefined}>
        <summary>As a table</summary>
        <RunTable runs={runs} params={params} />
      </details>
    </>
  );
}

function NoRuns({ profile }: { profile: string }) {
  return (
    <EmptyNote title={profile === "" ? "No run is stored yet" : `No run of a plan of ${profile} is stored`}>
      {profile !== "" && <p><a href={hrefOf("accuracy")}>Show runs of all profiles</a></p>}
      <p>A run compares a plan with the clock. Plan a layer, run it, and report it to this planner:</p>
      <Command text="moeplan plan --planner HOST:PORT --workload workload.json --json > plan.json" />
      <Command text="moeplan run --local 4 --plan plan.json --planner HOST:PORT" />
      <p>HOST:PORT is the planner's gRPC address, which <code>moeplan serve</code> prints. Or run all candidates of a grid of workloads, and keep them in the database that the planner was started with:</p>
      <Command text="moeplan validate --workloads grid.json --local 4 --db moeplan.db" />
      <p>A training job reports its own runs with <code>PlannerClient::ReportRun</code>.</p>
    </EmptyNote>
  );
}
