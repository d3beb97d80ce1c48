// How one layer should run: the question as a form, and the planner's answer with its reasons.
import { useMemo } from "preact/hooks";

import type { PlanResponse } from "../../../generated/moeplan/v1/plan";
import type { ExplainRulesResponse, GetRunResponse } from "../../../generated/moeplan/v1/planner_service";
import type { GetCurveResponse } from "../../../generated/moeplan/v1/profile_service";
import { call } from "../../api/client";
import { useLoaded } from "../../api/use_call";
import type { ViewProps } from "../../app";
import { ErrorNote } from "../../components/notes";
import { NoProfiles, ProfileField, useProfileNames } from "../../components/profile_field";
import * as text from "../../format";
import { hrefOf, setParams, type Params } from "../../route";
import { versionOf } from "../../version";
import type { WorkloadJson } from "../../workload";
import { Candidates } from "./candidates";
import type { Source } from "./cost_links";
import { pieces } from "./costs";
import { WorkloadForm } from "./form";
import { Headline } from "./headline";
import { MapSection } from "./map";
import { candidateOf } from "./measured";
import { fasterBaseline } from "./plan_facts";
import { askedWorkload, countOf, questionOf, type Question } from "./question";
import { RulesSection } from "./rules";
import { TimelineSection } from "./timeline_section";
import "./view.css";

const noCosts: readonly string[] = [];

function ProfileFields({ params, names }: { params: Params; names: readonly string[] }) {
  const version = params["version"] ?? "";
  const wrong = versionOf(version) === null;
  return (
    <div class="card profile-fields">
      <ProfileField names={names} value={params["profile"] ?? ""} none="the newest of all" onChange={(profile) => setParams({ profile, version: undefined, candidate: undefined })} />
      <div class="field">
        <label for="plan-version">Version</label>
        <input
          id="plan-version"
          type="text"
          inputMode="numeric"
          placeholder="the newest"
          value={version}
          {...(wrong ? { "aria-invalid": true, "aria-describedby": "plan-version-problem" } : {})}
          onChange={(event) => setParams({ version: event.currentTarget.value.trim(), candidate: undefined })}
        />
        {wrong && <span class="field-problem" id="plan-version-problem">not a version: a whole number of at least 1; nothing is asked</span>}
      </div>
      <label class="check">
        <input type="checkbox" checked={params["extrapolate"] === "1"} onChange={(event) => setParams({ extrapolate: event.currentTarget.checked ? "1" : undefined, candidate: undefined })} />
        Foretell collectives that the profile lacks from its links
      </label>
    </div>
  );
}

/** What is asked, and its answer: together, since the answer stays while the next one is awaited. */
interface Asked {
  /** Question and workload as one text. */
  asked: string;
  question: Question;
  workload: WorkloadJson;
  answer: PlanResponse;
}

interface AnswerProps extends Omit<Asked, "asked"> {
  loading: boolean;
  run: GetRunResponse | null;
  params: Params;
}

/** Costs that texts of the answer name. */
function spokenOf(answer: PlanResponse, explained: ExplainRulesResponse | null, costs: readonly string[]): string[] {
  const texts = [answer.explanation, ...answer.warnings].flatMap((words) => pieces(words, costs).flatMap(({ cost }) => (cost === undefined ? [] : [cost])));
  const terms = (explained?.rules ?? []).flatMap(({ times }) => times.flatMap((time) => time.terms.map(({ cost }) => cost)));
  return [...new Set([...texts, ...terms])];
}

function Answer({ answer, question, workload, loading, run, params }: AnswerProps) {
  // What was answered with the newest version stays with it, whatever is stored meanwhile.
  const pinned = { profileName: answer.profileName, ...(answer.profileVersion > 0 ? { profileVersion: answer.profileVersion } : {}) };
  const pinnedKey = JSON.stringify(pinned);
  const curve = useLoaded(answer.profileVersion > 0 ? pinnedKey : null, (signal) =>
    call<GetCurveResponse>("ProfileService/GetCurve", { ...pinned, maxSamples: 1 }, signal));
  const explained = useLoaded(`${pinnedKey} ${question.extrapolate} ${JSON.stringify(workload)}`, (signal) =>
    call<ExplainRulesResponse>("PlannerService/ExplainRules", { ...pinned, workload, extrapolate: question.extrapolate }, signal));
  const costs = curve.data?.costs ?? noCosts;
  const source: Source = { profile: answer.profileName, version: answer.profileVersion, costs };
  const mentioned = useMemo(() => spokenOf(answer, explained.data, costs), [answer, explained.data, costs]);

  const { candidates } = answer;
  const ran = run?.plan?.best ?? run?.run?.plan;
  const ranAt = useMemo(() => (ran ? candidateOf(ran, candidates) : -1), [ran, candidates]);
  const wanted = countOf(params["candidate"]) ?? (ranAt >= 0 ? ranAt : 0);
  const shown = Math.min(wanted, candidates.length - 1);
  const plan = candidates[shown];
  const baseline = fasterBaseline(candidates);

  return (
    <>
      <Headline answer={answer} source={source} loading={loading} />
      {plan !== undefined && (
        <>
          {run !== null && shown !== ranAt && <p class="note warning">The run was of {ranAt >= 0 ? "another candidate" : "a schedule that is not among the candidates"}; its ranks stand under this one.</p>}
          <TimelineSection plan={plan} baseline={baseline} run={run} source={source} mentioned={mentioned} />
          <Candidates candidates={candidates} shown={shown} onShow={(index) => setParams({ candidate: index }, true)} />
        </>
      )}
      <RulesSection answer={answer} explained={explained} source={source} />
      <MapSection workload={workload} question={{ ...pinned, extrapolate: question.extrapolate }} params={params} />
    </>
  );
}

function RunNote({ run }: { run: GetRunResponse }) {
  const { run: summary } = run;
  if (!summary) return null;
  const error = summary.measuredTimeS > 0 ? (summary.predictedTimeS - summary.measuredTimeS) / summary.measuredTimeS : NaN;
  return (
    <p class="note">
      Run {summary.run}: measured {text.seconds(summary.measuredTimeS)}, predicted {text.seconds(summary.predictedTimeS)} ({text.percent(error)} off) with profile{" "}
      {summary.profileName === "" ? "without a name" : summary.profileName} version {summary.profileVersion}.{" "}
      {summary.profileVersion === 0 && "That profile came from a file; what stands below rests on a stored one. "}
      {run.ranks.length === 0 && "Its ranks' timelines were not kept. "}
      <a href={hrefOf("accuracy", { run: summary.run })}>Accuracy of all runs</a>
    </p>
  );
}

export function PlanView({ params }: ViewProps) {
  const names = useProfileNames();
  const { workload: asked, problem } = askedWorkload(params);
  const runNumber = countOf(params["run"]);
  const run = useLoaded(runNumber === null ? null : `run ${runNumber}`, (signal) => call<GetRunResponse>("PlannerService/GetRun", { run: runNumber }, signal));
  const runShown = runNumber !== null && run.data?.run?.run === runNumber ? run.data : null;

  // A link to a run alone asks what ran.
  const ofRun = asked === null && runShown?.plan?.workload ? (runShown.plan.workload as unknown as WorkloadJson) : null;
  const workload = asked ?? ofRun;
  const question = questionOf(ofRun !== null && runShown !== null && params["profile"] === undefined
    ? { ...params, profile: runShown.run?.profileName ?? "", version: String(runShown.run?.profileVersion ?? "") }
    : params);
  const key = workload === null || (ofRun === null && versionOf(params["version"]) === null) ? null : JSON.stringify({ ...question, workload });
  const plan = useLoaded<Asked>(key, async (signal) => ({
    asked: key!,
    question,
    workload: workload!,
    answer: await call<PlanResponse>("PlannerService/Plan", { ...question, workload, view: "FULL" }, signal),
  }));
  const isOld = plan.data !== null && plan.data.asked !== key;

  if (names.data !== null && names.data.length === 0 && workload === null) return <NoProfiles />;
  return (
    <div class="columns plan-columns">
      <div class="plan-question">
        <ProfileFields params={params} names={names.data ?? noCosts} />
        <div class="card">
          <WorkloadForm
            asked={workload}
            error={plan.loading ? null : plan.error}
            loading={plan.loading}
            onPlan={(next) => {
              const same = JSON.stringify(next) === JSON.stringify(asked);
              if (same) plan.reload();
              else setParams({ workload: JSON.stringify(next), candidate: undefined, run: undefined });
            }}
          />
        </div>
      </div>
      <div class="plan-answer">
        {names.error !== null && names.data === null && <ErrorNote error={names.error} />}
        {names.data !== null && names.data.length === 0 && <NoProfiles />}
        {problem !== "" && <ErrorNote message={`The workload of this address: ${problem}`} />}
        {runNumber !== null && run.error !== null && <ErrorNote error={run.error} />}
        {runShown !== null && <RunNote run={runShown} />}
        {plan.error !== null && <ErrorNote error={plan.error} />}
        {workload === null && problem === "" && runNumber === null && (
          <p class="note empty">The form holds an example. Plan asks how its layer should run; the answer stands here.</p>
        )}
        {(plan.data === null || isOld) && plan.loading && <p class="muted" role="status">Planning …</p>}
        {workload !== null && plan.data !== null && (
          <div class={isOld ? "old-answer" : undefined} aria-busy={isOld}>
            <Answer answer={plan.data.answer} question={plan.data.question} workload={plan.data.workload} loading={plan.loading} run={runShown} params={params} />
          </div>
        )}
      </div>
    </div>
  );
}
