import type { AdviseRequest, AdviseResponse, ListNamedResponse } from "../../../generated/moeplan/v1/planner_service";
import { AsTable } from "../../charts/as_table";
import { CopyLink } from "../../components/copy_link";
import { CostList } from "../../components/cost_link";
import { WarningList } from "../../components/notes";
import * as text from "../../format";
import { PricedFrom } from "../../job/priced_from";
import type { Params } from "../../route";
import { Figures } from "./figures";
import { dispatchersHref, layoutsHref } from "./links";
import { Settings } from "./settings";
import { expectedWords, gainWords, runnerUpWords, stepWords } from "./words";

interface Props {
  params: Params;
  request: AdviseRequest;
  answer: AdviseResponse;
  named: ListNamedResponse | null;
  /** Whether it answers what was asked before. */
  isOld: boolean;
}

export function Answer({ params, request, answer, named, isOld }: Props) {
  const { result } = answer;
  if (result?.step === undefined) return null;
  const exported = result.export;
  const warnings = [...new Set([...result.warnings, ...(exported?.warnings ?? [])])];
  return (
    <div class={isOld ? "old-answer" : undefined} aria-busy={isOld}>
      <section class="card" aria-labelledby="advice-title">
        <h2 id="advice-title">The answer</h2>
        <p class="advised">Take <strong>{result.text}</strong>: a step takes {stepWords(result.step)}.</p>
        {[expectedWords(result), gainWords(result)].map((words) => words !== "" && <p key={words}>{words}</p>)}
        {result.reasons.length > 0 && (
          <>
            <h3>Why</h3>
            <ul class="reasons">{result.reasons.map((reason) => <li key={reason}>{reason}</li>)}</ul>
          </>
        )}
        {result.runnerUp !== undefined && <p>{runnerUpWords(result)}</p>}
        {result.scheduled !== "" && <p>Beyond the settings below, {result.scheduled}.</p>}
        {result.step.overlap !== "" && (
          <AsTable summary="What exchanges of experts beside another micro-batch come to">{() => <p>{result.step!.overlap}</p>}</AsTable>
        )}
        <p class="muted">{text.count(result.considered)} layouts and ways to run them were looked at.</p>
        {!isOld && <Links params={params} answer={answer} />}
      </section>
      <Figures answer={answer} />
      {exported !== undefined && (
        <Settings exported={exported} remove={result.removeArguments} title={named?.targets.find(({ name }) => name === exported.target)?.title ?? exported.target} />
      )}
      {result.measureNext.length > 0 && (
        <section class="card" aria-labelledby="measure-title">
          <h2 id="measure-title">What to measure to be surer</h2>
          <ol class="measure-next">{result.measureNext.map((cost) => <li key={cost}>{cost}</li>)}</ol>
        </section>
      )}
      <WarningList warnings={warnings} />
      <PricedFrom profile={answer.profileName} version={answer.profileVersion} hardware={request.hardware} />
      <Costs request={request} answer={answer} costs={result.costs.map(({ cost }) => cost)} />
    </div>
  );
}

/** What the step is priced from; hardware beside a profile has costs without a curve among them. */
function Costs({ request, answer, costs }: Pick<Props, "request" | "answer"> & { costs: readonly string[] }) {
  if (costs.length === 0) return null;
  const hasCurves = answer.profileVersion > 0 && request.hardware === "";
  return (
    <>
      <p>The costs that its step is priced from, the dearest first:</p>
      <CostList source={hasCurves ? { profile: answer.profileName, version: answer.profileVersion } : null} costs={costs} />
    </>
  );
}

function Links({ params, answer }: { params: Params; answer: AdviseResponse }) {
  const dispatchers = dispatchersHref(params, answer);
  return (
    <div class="row onward">
      {dispatchers !== null && <a href={dispatchers}>Which dispatcher is the fastest for it, and when that flips</a>}
      <a href={layoutsHref(params, answer)}>All layouts, ranked</a>
      <CopyLink profile={answer.profileName} version={answer.profileVersion} />
    </div>
  );
}
