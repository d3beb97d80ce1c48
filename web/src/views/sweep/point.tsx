// One point of a sweep that no plan holds, since it changes the profile: what it says, and what that is priced from.
import type { RefObject } from "preact";

import type { SweepPoint } from "../../../generated/moeplan/v1/planner_service";
import { CostList, type PricedWith } from "../../components/cost_link";
import { describePlan } from "../../describe";
import * as text from "../../format";
import { hasInterval } from "../../interval";
import { setParams } from "../../route";

interface Props {
  /** From 1. */
  number: number;
  point: SweepPoint;
  paths: readonly string[];
  /** Those of them that are no part of a workload. */
  outside: readonly string[];
  source: PricedWith;
  /** To the plan of its workload under the profile as it is stored; null: its layout is of another cluster. */
  plan: string | null;
  heading: RefObject<HTMLHeadingElement | null>;
}

export function PointDetails({ number, point: { row, baselineTimeS, costs }, paths, outside, source, plan, heading }: Props) {
  const best = row?.best;
  return (
    <section class="card" aria-labelledby="point-title">
      <div class="row">
        <h2 id="point-title" ref={heading} tabIndex={-1}>Point {number}</h2>
        <button type="button" class="quiet" onClick={() => setParams({ point: undefined })}>Close</button>
      </div>
      <dl class="facts">
        {paths.map((path) => [<dt key={`${path} name`}>{path}</dt>, <dd key={path}>{String(row?.fields[path] ?? "")}</dd>])}
        <dt>best schedule</dt>
        <dd>{best === undefined ? `none: ${row?.reason ?? "not known"}` : describePlan(best)}</dd>
        {best !== undefined && (
          <>
            <dt>predicted</dt>
            <dd>{text.seconds(best.predictedTimeS)}{hasInterval(best) && ` (90 %: ${text.seconds(best.lowS)} to ${text.seconds(best.highS)})`}</dd>
            {baselineTimeS !== undefined && (
              <>
                <dt>faster baseline</dt>
                <dd>{text.seconds(baselineTimeS)}, {text.factor(baselineTimeS / best.predictedTimeS)} the time</dd>
              </>
            )}
            <dt>priced from</dt>
            <dd>
              {costs.length === 0 ? "costs that links predict alone" : (
                <>
                  <CostList source={source} costs={costs} />
                  as stored, before {outside.join(" and ")} {outside.length === 1 ? "is" : "are"} set; what takes most of the time first
                </>
              )}
            </dd>
          </>
        )}
      </dl>
      {best !== undefined && plan !== null && <p><a href={plan}>Plan of its workload, under the profile as stored</a></p>}
    </section>
  );
}
