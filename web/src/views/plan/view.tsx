// How one layer should run: the question as a form, and the planner's answer with its reasons.
import { useEffect, useMemo, useState } from "preact/hooks";

import type { PlanResponse } from "../../../generated/moeplan/v1/plan";
import type { ExplainRulesResponse, GetRunResponse } from "../../../generated/moeplan/v1/planner_service";
import { call } from "../../api/client";
import { useLoaded } from "../../api/use_call";
import { ErrorNote } from "../../components/notes";
import { NoProfiles, ProfileField, useProfileNames } from "../../components/profile_field";
import { hrefWith, setParams, type Params, type ViewProps } from "../../route";
import { versionOf } from "../../version";
import type { WorkloadJson } from "../../workload";
import { Candidates } from "./candidates";
import type { Source } from "./cost_links";
import { costsNamed } from "./explained";
import { WorkloadForm } from "./form";
import { Headline } from "./headline";
import { MapSection } from "./map";
import { fasterBaseline } from "./plan_facts";
import { askedWorkload, countOf, questionOf, type Question } from "./question";
import { RulesSection } from "./rules";
import { RunAnswer } from "./run";
import { TimelineSection } from "./timeline_section";
import { useExplained } from "./use_explained";
import "./view.css";

const noCosts: readonly string[] = [];

interface ProfileProps {
  params: Params;
  names: readonly string[];
  onChange: (changes: Readonly<Record<string, string | undefined>>) => void;
}

function ProfileFields({ params, names, onChange }: ProfileProps) {
  const version = params["version"] ?? "";
  const wrong = versionOf(version) === null;
  // It is asked once it is typed to its end; drawing the page again until then leaves what is typed.
  const [typed, setTyped] = useState(version);
  useEffect(() => setTyped(version), [version]);
  return (
    <div class="card profile-fields">
      <ProfileField names={names} value={params["profile"] ?? ""} none="the newest of all" onChange={(profile) => onChange({ profile, version: undefined })} />
      <div class="field">
        <label for="plan-version">Version</label>
        <input
          id="plan-version"
          type="text"
          inputMode="numeric"
          placeholder="the newest"
          value={typed}
          {...(wrong ? { "aria-invalid": true, "aria-describedby": "plan-version-problem" } : {})}
          onInput={(event) => setTyped(event.currentTarget.value)}
          onChange={(event) => onChange({ version: event.currentTarget.value.trim() })}
        />
        {wrong && <span class="field-problem" id="plan-version-problem">not a version: a whole number of at least 1; nothing is asked</span>}
      </div>
      <label class="check">
        <input type="checkbox" checked={params["extrapolate"] === "1"} onChange={(event) => onChange({ extrapolate: event.currentTarget.checked ? "1" : undefined })} />
        Estimate costs that were not measured
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
  params: Params;
}

function Answer({ answer, question, workload, loading, params }: AnswerProps) {
  // What was answered with the newest version stays with it, whatever is stored meanwhile.
  const pinned = { profileName: answer.profileName, profileVersion: answer.profileVersion };
  const pinnedKey = JSON.stringify(pinned);
  const rules = useLoaded(`${pinnedKey} ${question.extrapolate} ${JSON.stringify(workload)}`, (signal) =>
    call<ExplainRulesResponse>("PlannerService/ExplainRules", { ...pinned, workload, extrapolate: question.extrapolate }, signal));
  const explained = rules.isOld ? { ...rules, data: null } : rules;
  const { candidates } = answer;
  const shown = Math.min(countOf(params["candidate"]) ?? 0, candidates.length - 1);
  const baseline = fasterBaseline(candidates);
  const isBaseline = candidates[shown] === baseline;
  const plan = useExplained(pinned, workload, candidates[shown]);
  const under = useExplained(pinned, workload, isBaseline ? undefined : baseline);
  // Texts name costs of the best, whichever is shown.
  const best = useExplained(pinned, workload, shown === 0 ? undefined : candidates[0]);
  const costs = useMemo(() => costsNamed([plan, under, best].map((one) => one?.tasks), explained.data), [plan?.tasks, under?.tasks, best?.tasks, explained.data]);
  const source: Source = { profile: answer.profileName, version: answer.profileVersion, costs };

  return (
    <>
      <Headline answer={answer} explained={shown === 0 ? plan : best} source={source} loading={loading} />
      {plan !== undefined && (
        <>
          <TimelineSection name={isBaseline ? "Shown, the faster baseline" : "Shown"} shown={plan} baselineName="Faster baseline" baseline={under} run={null} source={source} said={answer.warnings} />
          <Candidates
            candidates={candidates}
            shown={shown}
            onShow={(index) => setParams({ candidate: index }, true)}
            sort={params["sort"] ?? ""}
            onSort={(sort) => setParams({ sort }, true)}
          />
        </>
      )}
      <RulesSection answer={answer} explained={explained} source={source} />
      <MapSection workload={workload} question={{ ...pinned, extrapolate: question.extrapolate }} params={params} />
    </>
  );
}

export function PlanView({ params }: ViewProps) {
  const names = useProfileNames();
  const { workload: asked, problem } = askedWorkload(params);
  const ofRun = params["run"] !== undefined;
  const noProfiles = names.data !== null && names.data.length === 0 && !ofRun;
  const runNumber = countOf(params["run"]);
  const run = useLoaded(runNumber === null ? null : `run ${runNumber}`, (signal) => call<GetRunResponse>("PlannerService/GetRun", { run: runNumber }, signal));
  const runShown = runNumber !== null && run.data?.run?.run === runNumber ? run.data : null;

  const ranWorkload = asked === null && runShown?.plan?.workload ? (runShown.plan.workload as unknown as WorkloadJson) : null;

  // Of a run its own profile is asked, where it is stored and the address names no other.
  const ranProfile = runShown?.run && runShown.run.profileVersion > 0 ? runShown.run.profileName : undefined;
  const profileAsked: Params = params["profile"] === undefined && ranProfile !== undefined ? { profile: ranProfile } : {};

  const question = questionOf(params);
  // What ran is stored; a search would say something else.
  // A profile that is stored meanwhile may answer what could not be answered before.
  const key = ofRun || asked === null || versionOf(params["version"]) === null ? null : JSON.stringify({ ...question, workload: asked, noProfiles });
  const plan = useLoaded<Asked>(key, async (signal) => ({
    asked: key!,
    question,
    workload: asked!,
    answer: await call<PlanResponse>("PlannerService/Plan", { ...question, workload: asked, view: "FULL" }, signal),
  }));
  const isOld = plan.data !== null && plan.data.asked !== key;
  /** Asks anew, which is no longer about a run; but its workload stays. */
  const ask = (changes: Readonly<Record<string, string | undefined>>): void =>
    setParams({ ...(ranWorkload === null ? {} : { workload: JSON.stringify(ranWorkload) }), ...profileAsked, ...changes, candidate: undefined, run: undefined });

  if (noProfiles && asked === null) return <NoProfiles />;
  return (
    <div class="columns plan-columns">
      <div class="plan-question">
        <ProfileFields params={{ ...params, ...profileAsked }} names={names.data ?? noCosts} onChange={ask} />
        <div class="card">
          <WorkloadForm
            asked={asked ?? ranWorkload}
            error={plan.loading ? null : plan.error}
            loading={plan.loading}
            onPlan={(next) => {
              const same = key !== null && JSON.stringify(next) === JSON.stringify(asked);
              if (same) plan.reload();
              else ask({ workload: JSON.stringify(next) });
            }}
          />
        </div>
      </div>
      <div class="plan-answer">
        {names.error !== null && names.data === null && <ErrorNote error={names.error} />}
        {noProfiles && <NoProfiles />}
        {problem !== "" && <ErrorNote message={`The workload of this address: ${problem}`} />}
        {ofRun && runNumber === null && <ErrorNote message={`The address names run ${params["run"]}, which is no number. Nothing is planned in its place.`} />}
        {runNumber !== null && run.error !== null && <ErrorNote error={run.error} />}
        {runNumber !== null && runShown === null && run.loading && <p class="muted" role="status">Loading the run …</p>}
        {runShown !== null && <RunAnswer answer={runShown} asked={asked} />}
        {plan.error !== null && !plan.loading && <ErrorNote error={plan.error} />}
        {plan.error !== null && !plan.loading && plan.error.code === "INVALID_ARGUMENT" && plan.error.field === "" && params["extrapolate"] !== "1" && (
          <p>What was not measured can be estimated, where it was measured nearby: <a href={hrefWith({ extrapolate: "1" })}>plan with estimates</a>.</p>
        )}
        {asked === null && problem === "" && !ofRun && (
          <p class="note empty">The form holds an example. Plan asks how its layer should run; the answer stands here.</p>
        )}
        {(plan.data === null || isOld) && plan.loading && <p class="muted" role="status">Planning …</p>}
        {plan.data !== null && (
          <div class={isOld ? "old-answer" : undefined} aria-busy={isOld}>
            <Answer answer={plan.data.answer} question={plan.data.question} workload={plan.data.workload} loading={plan.loading} params={params} />
          </div>
        )}
      </div>
    </div>
  );
}
