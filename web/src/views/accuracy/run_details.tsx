// One run: what ran, what was predicted, what ranks recorded, and the way to its timeline.
import type { RefObject } from "preact";

import type { GetRunResponse } from "../../../generated/moeplan/v1/planner_service";
import type { RankTimeline } from "../../../generated/moeplan/v1/report";
import { call } from "../../api/client";
import { useLoaded } from "../../api/use_call";
import { ErrorNote, WarningList } from "../../components/notes";
import { Table, type Column } from "../../components/table";
import { describePlan } from "../../describe";
import * as text from "../../format";
import { hrefOf, setParams } from "../../route";
import { signedError } from "../../signed_error";
import { hasInterval, profileOf } from "./statistics";

const endOf = ({ timeline }: RankTimeline): number => timeline.reduce((last, { endS }) => Math.max(last, endS), 0);

export function RunDetails({ number, heading }: { number: string; heading: RefObject<HTMLHeadingElement | null> }) {
  const { data: last, isOld, error, loading } = useLoaded(`run ${number}`, (signal) => call<GetRunResponse>("PlannerService/GetRun", { run: Number(number) }, signal));
  const data = isOld ? null : last;
  const run = data?.run;
  return (
    <section class="card" aria-labelledby="run-title">
      <div class="row">
        <h2 id="run-title" ref={heading} tabIndex={-1}>Run {number}</h2>
        <button type="button" class="quiet" onClick={() => setParams({ run: undefined })}>Close</button>
      </div>
      {error !== null && data === null && <ErrorNote error={error} />}
      {loading && data === null && <p class="muted" role="status">Loading …</p>}
      {data !== null && run !== undefined && <Shown answer={data} run={run} />}
    </section>
  );
}

function Shown({ answer, run }: { answer: GetRunResponse; run: NonNullable<GetRunResponse["run"]> }) {
  const plan = run.plan;
  const curves = run.profileVersion > 0 ? hrefOf("curves", { profile: run.profileName, version: run.profileVersion }) : null;
  const workload = answer.plan?.workload;
  const atPlan = hrefOf("plan", {
    run: run.run,
    ...(run.profileVersion > 0 ? { profile: run.profileName, version: run.profileVersion } : {}),
    workload: workload === undefined ? undefined : JSON.stringify(workload),
  });
  return (
    <>
      <dl class="facts">
        <dt>schedule</dt>
        <dd>{plan === undefined ? "not known" : describePlan(plan)}</dd>
        <dt>workload</dt>
        <dd>{run.workloadName === "" ? "without a name" : run.workloadName}</dd>
        <dt>profile</dt>
        <dd>{curves === null ? profileOf(run) : <a href={curves}>{run.profileName} version {run.profileVersion}</a>}</dd>
        <dt>predicted</dt>
        <dd>
          {curves === null ? text.seconds(run.predictedTimeS) : <a href={curves}>{text.seconds(run.predictedTimeS)}</a>}
          {plan !== undefined && hasInterval(run) && ` (90 %: ${text.seconds(plan.lowS)} to ${text.seconds(plan.highS)})`}
        </dd>
        <dt>measured</dt>
        <dd>{text.seconds(run.measuredTimeS)}, error {text.signedPercent(signedError(run))}</dd>
        <dt>stored at</dt>
        <dd><time>{run.createdAt}</time></dd>
        {run.requestId !== "" && (
          <>
            <dt>brought by</dt>
            <dd>{run.requestId}</dd>
          </>
        )}
      </dl>
      <p><a href={atPlan}>Its plan and timelines</a></p>
      {answer.ranks.length > 0 && <Ranks ranks={answer.ranks} />}
      {answer.plan !== undefined && <WarningList warnings={answer.plan.warnings} />}
    </>
  );
}

function Ranks({ ranks }: { ranks: readonly RankTimeline[] }) {
  const slowest = ranks.reduce((last, rank) => Math.max(last, endOf(rank)), 0);
  const columns: Column<RankTimeline>[] = [
    { head: "rank", cell: ({ rank }) => String(rank) },
    { head: "tasks", numeric: true, cell: ({ timeline }) => text.count(timeline.length) },
    { head: "ended after", numeric: true, cell: (rank) => text.seconds(endOf(rank)) },
    { head: "", cell: (rank) => (endOf(rank) === slowest ? "slowest" : "") },
  ];
  return (
    <details>
      <summary>{ranks.length === 1 ? "1 rank recorded" : `${text.count(ranks.length)} ranks recorded`}</summary>
      <Table caption="What ranks recorded" columns={columns} rows={ranks} keyOf={({ rank }) => rank} />
    </details>
  );
}
