// The answer in short: what to run, what it takes, how sure that is, and what was left out.
import type { Plan, PlanResponse, RoutingReport } from "../../../generated/moeplan/v1/plan";
import { familyClass } from "../../charts/colors";
import { WarningList } from "../../components/notes";
import { describePlan, ratioOf } from "../../describe";
import * as text from "../../format";
import { hrefOf } from "../../route";
import { CostLink } from "../../components/cost_link";
import { TextWithCosts, type Source } from "./cost_links";
import { dearestCosts } from "./explained";
import { algorithmName, codecName, counted } from "./names";
import { fasterBaseline, interval } from "./plan_facts";
import { Share } from "./share";
import { stopWords } from "./stop_reason";
import type { ExplainedPlan } from "./use_explained";

/** The entries whose times make up the plan's, the dearest first. */
function PricedFrom({ explained, source }: { explained: ExplainedPlan | undefined; source: Source }) {
  if (explained === undefined) return null;
  const costs = dearestCosts(explained.plan.timeline, explained.tasks);
  if (costs.length === 0) return null;
  return (
    <>
      <dt>Priced from</dt>
      <dd>
        <ul class="priced-from">
          {costs.map(({ cost, tasks, timeS }) => <li key={cost}><CostLink source={source} cost={cost} />: {counted(tasks, "task")}, {text.seconds(timeS)} in all</li>)}
        </ul>
      </dd>
    </>
  );
}

interface FactsProps {
  plan: Plan;
  baseline: Plan | undefined;
  explained: ExplainedPlan | undefined;
  source: Source;
}

function Facts({ plan, baseline, explained, source }: FactsProps) {
  return (
    <dl class="facts">
      <dt>Predicted time</dt>
      <dd><strong>{text.seconds(plan.predictedTimeS)}</strong></dd>
      <dt>90 % interval</dt>
      <dd>{interval(plan)}</dd>
      <dt>Over the faster baseline</dt>
      <dd>
        {baseline === undefined ? "no baseline could be priced" : `${text.factor(baseline.predictedTimeS / plan.predictedTimeS)} as fast as ${baseline.schedule} (${text.seconds(baseline.predictedTimeS)})`}
      </dd>
      <dt>Chunks N, partitions r</dt>
      <dd>{plan.chunks}, {plan.partitionDegree}{plan.chunkShares.length > 0 ? ` (sizes ${ratioOf(plan.chunkShares)})` : ""}</dd>
      <dt>All-to-all</dt>
      <dd>{algorithmName(plan.allToAll)}{plan.overlappedGather ? ", gather overlapped" : ""}{plan.communicationCtas > 0 ? `, ${plan.communicationCtas} CTAs` : ""}</dd>
      <dt>Codec there, back</dt>
      <dd>{codecName(plan.dispatchCodec)}, {codecName(plan.combineCodec)}</dd>
      <dt>Memory of a rank</dt>
      <dd>{text.bytes(plan.memoryBytes)}</dd>
      <PricedFrom explained={explained} source={source} />
    </dl>
  );
}

function Skipped({ answer, source }: { answer: PlanResponse; source: Source }) {
  const { skippedRules, skippedCandidates } = answer;
  const many = skippedRules.length + skippedCandidates.length;
  if (many === 0) return null;
  return (
    <details class="note">
      <summary>Left out: {counted(skippedRules.length, "rule")}, {counted(skippedCandidates.length, "kind of candidates", "kinds of candidates")}</summary>
      <ul>
        {skippedRules.map(({ rule, reason }) => <li key={rule}>Rule <code>{rule}</code>: <TextWithCosts source={source} text={reason} /></li>)}
        {skippedCandidates.map(({ schedule, reason }, index) => <li key={index}><code>{schedule}</code>: <TextWithCosts source={source} text={reason} /></li>)}
      </ul>
    </details>
  );
}

const ratio = (value: number): string => `${text.factor(value)} the mean`;

/** What uneven routing costs, and what balancing would gain. */
function Routing({ routing }: { routing: RoutingReport }) {
  const { capacity, placement, replicas } = routing;
  const time = (timeS: number | null | undefined): string => (timeS === undefined || timeS === null ? "nothing fits or can be priced" : text.seconds(timeS));
  return (
    <details class="note">
      <summary>Routing is uneven: the busiest expert gets {ratio(routing.busiestExpertRatio)}</summary>
      <dl class="facts">
        <dt>Busiest EP rank</dt>
        <dd>{ratio(routing.busiestRankRatio)}</dd>
        <dt>Pairs dropped</dt>
        <dd>{text.percent(routing.droppedShare)}</dd>
        {capacity && <><dt>With more slots</dt><dd>{time(capacity.predictedTimeS)} at capacity {Number(capacity.capacityFactor.toPrecision(4))} ({text.count(capacity.slots)} slots), nothing dropped</dd></>}
        {placement && <><dt>With experts moved</dt><dd>{time(placement.predictedTimeS)}, busiest rank {ratio(placement.busiestRankRatio)} (at least {text.factor(placement.busiestRankRatioFloor)})</dd></>}
        {replicas && (
          <>
            <dt>With copies</dt>
            <dd>{time(replicas.predictedTimeS)}, {counted(replicas.extraExpertsPerRank, "more place", "more places")} and {text.bytes(replicas.extraWeightBytes)} of weights a rank, {text.percent(replicas.droppedShare)} dropped</dd>
          </>
        )}
      </dl>
    </details>
  );
}

interface Props {
  answer: PlanResponse;
  /** The best of it; undefined: there is none. */
  explained: ExplainedPlan | undefined;
  source: Source;
  loading: boolean;
}

export function Headline({ answer, explained, source, loading }: Props) {
  const { best, search, explanation, warnings } = answer;
  const baseline = fasterBaseline(answer.candidates);
  const name = answer.workload?.name ?? "";
  return (
    <section class="card headline" aria-labelledby="plan-headline" aria-busy={loading}>
      <h2 id="plan-headline">
        {best === undefined ? "No candidate could be priced" : <><span class={`swatch ${familyClass(best.schedule)}`} aria-hidden="true" />{describePlan(best)}</>}
      </h2>
      <p class="muted">
        {name === "" ? "Unnamed workload" : <>Workload <q>{name}</q></>} on profile{" "}
        <a href={hrefOf("curves", { profile: source.profile, version: source.version > 0 ? source.version : undefined })}>{source.profile === "" ? "without a name" : source.profile} version {source.version}</a>
        {search !== undefined && <>; {stopWords(search)}; none can be faster than {text.seconds(search.timeFloorS)}</>}.
      </p>
      {best !== undefined && <Facts plan={best} baseline={baseline} explained={explained} source={source} />}
      {explanation !== "" && <p><TextWithCosts source={source} text={explanation} /></p>}
      {answer.routing && <Routing routing={answer.routing} />}
      <WarningList warnings={warnings} />
      <Skipped answer={answer} source={source} />
      <Share answer={answer} />
    </section>
  );
}
