// What ran: a stored run's own plan and its ranks, never what a search would answer today.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import type { GetRunResponse, Run } from "../../../generated/moeplan/v1/planner_service";
import { WarningList } from "../../components/notes";
import { describePlan } from "../../describe";
import * as text from "../../format";
import { hrefOf } from "../../route";
import { signedError } from "../../signed_error";
import type { WorkloadJson } from "../../workload";
import type { Source } from "./cost_links";
import { differences, planOfRun } from "./measured";
import { TimelineSection } from "./timeline_section";
import { useBaseline, useExplained, type ExplainedPlan } from "./use_explained";

const noCosts: readonly string[] = [];
const noWarnings: readonly string[] = [];

function ProfileOf({ run }: { run: Run }) {
  if (run.profileVersion === 0) return <>{run.profileName === "" ? "a file without a name" : `${run.profileName}, from a file`}</>;
  return <a href={hrefOf("curves", { profile: run.profileName, version: run.profileVersion })}>{run.profileName} version {run.profileVersion}</a>;
}

interface SummaryProps {
  answer: GetRunResponse;
  run: Run;
  children: ComponentChildren;
}

function Summary({ answer, run, children }: SummaryProps) {
  const workload = answer.plan?.workload;
  const again = workload && hrefOf("plan", { profile: run.profileVersion > 0 ? run.profileName : undefined, workload: JSON.stringify(workload) });
  return (
    <section class="card" aria-labelledby="plan-run">
      <h2 id="plan-run">Run {run.run}{run.plan && `: ${describePlan(run.plan)}`}</h2>
      <dl class="facts">
        <dt>Layer</dt>
        <dd>{run.workloadName === "" ? "without a name" : <q>{run.workloadName}</q>}</dd>
        <dt>Measured</dt>
        <dd>{text.seconds(run.measuredTimeS)}</dd>
        <dt>Predicted then</dt>
        <dd>{text.seconds(run.predictedTimeS)} ({text.signedPercent(signedError(run))})</dd>
        <dt>Planned with</dt>
        <dd><ProfileOf run={run} /></dd>
        <dt>Stored at</dt>
        <dd><time>{run.createdAt}</time></dd>
      </dl>
      {children}
      {answer.ranks.length === 0 && <p>What its ranks did was not kept, only how long it took.</p>}
      <p>
        <a href={hrefOf("accuracy", { run: run.run })}>Accuracy of all runs</a>
        {again && <>, <a href={again}>what is planned for its layer today</a></>}
      </p>
    </section>
  );
}

/** Why a run's plan is shown without its reasons; empty: it is not. */
function lacks(run: Run, { plan, error }: ExplainedPlan): string {
  const timeline = plan.timeline.length > 0 ? "The timeline below is the one that was answered then." : "Its timeline was not kept.";
  if (plan.chunks === 0) return "Of its plan only the schedule was kept: there is no planned timeline beside what was measured.";
  if (run.profileVersion === 0) return `Its profile came from a file and is not stored: there are no costs to show, and no critical path. ${timeline}`;
  if (error?.code === "NOT_FOUND") return `What it was planned with is not stored any more, so its costs and its critical path are not known. ${timeline}`;
  return "";
}

function PlanThatRan({ answer, run, workload, asked }: { answer: GetRunResponse; run: Run; workload: WorkloadJson; asked: WorkloadJson | null }) {
  const ran = useMemo(() => planOfRun(answer), [answer]);
  const pinned = run.profileVersion > 0 && ran !== undefined && ran.chunks > 0 ? { profileName: run.profileName, profileVersion: run.profileVersion } : null;
  const plan = useExplained(pinned, workload, ran);
  // What is kept of a run has no candidates.
  const { baseline: faster, error } = useBaseline(pinned, workload);
  const baseline = ran !== undefined && faster !== undefined && describePlan(faster.plan) === describePlan(ran) ? undefined : faster;
  const warnings = answer.plan?.warnings ?? noWarnings;
  const source: Source = { profile: run.profileName, version: run.profileVersion, costs: noCosts };
  const others = asked === null ? [] : differences(asked, workload);
  const why = plan === undefined ? "" : lacks(run, plan);
  return (
    <>
      <Summary answer={answer} run={run}>
        {others.length > 0 && <p class="note warning">The workload of this address is another than the run's, in {others.join(", ")}: the form holds it, and Plan asks for it. What stands here is the run's.</p>}
        {why !== "" && <p class="note warning">{why}</p>}
        {error !== null && error.code !== "NOT_FOUND" && <p class="note">No baseline to compare with: {error.message}</p>}
        <WarningList warnings={warnings} />
      </Summary>
      {plan !== undefined && <TimelineSection name="Planned" shown={plan} baselineName="Faster baseline" baseline={baseline} run={answer} source={source} said={warnings} />}
    </>
  );
}

/** Of a training graph, or of what cannot be read any more. */
function WithoutLayer({ answer, run }: { answer: GetRunResponse; run: Run }) {
  const lancet = answer.plan?.rules?.lancet;
  return (
    <Summary answer={answer} run={run}>
      {lancet
        ? <p>It ran a training graph, which Lancet put in order: {text.count(lancet.order.length)} instructions in {text.seconds(lancet.timeS)} rather than {text.seconds(lancet.unscheduledTimeS)} as they were given. There is no layer whose tasks could be shown.</p>
        : <p class="note warning">What was planned for it cannot be read: only its schedule and its times are known.</p>}
    </Summary>
  );
}

export function RunAnswer({ answer, asked }: { answer: GetRunResponse; asked: WorkloadJson | null }) {
  const { run } = answer;
  const workload = answer.plan?.workload;
  if (!run) return null;
  if (!workload) return <WithoutLayer answer={answer} run={run} />;
  return <PlanThatRan key={run.run} answer={answer} run={run} workload={workload as unknown as WorkloadJson} asked={asked} />;
}
