// One layout: what its memory is the sum of, and what its times are priced from.
import type { RefObject } from "preact";

import type { RankedLayout } from "../../../generated/moeplan/v1/report";
import { CostList, type PricedWith } from "../../components/cost_link";
import * as text from "../../format";
import { hrefOf, setParams } from "../../route";
import { rowText } from "./links";
import { memoryParts } from "./memory";

interface Props {
  row: RankedLayout & { rank: number };
  /** null: hardware was named, which has no curves. */
  source: PricedWith | null;
  /** Memory of a GPU; 0: not known. */
  limit: number;
  /** To the plan of its MoE layer, or what leads to it; null: it has none. */
  plan: string | null;
  heading: RefObject<HTMLHeadingElement | null>;
}

export function LayoutDetails({ row, source, limit, plan, heading }: Props) {
  const toPlan = (words: string) => (plan === null ? words : <a href={plan}>{words}</a>);
  return (
    <section class="card" aria-labelledby="layout-title">
      <div class="row">
        <h2 id="layout-title" ref={heading} tabIndex={-1}>Layout {row.rank}: {rowText(row)}</h2>
        <button type="button" class="quiet" onClick={() => setParams({ layout: undefined })}>Close</button>
      </div>
      <dl class="facts">
        <dt>memory</dt>
        <dd>
          {text.bytes(row.memoryBytes)}
          {limit > 0 && <> of the {source !== null ? <a href={hrefOf("clusters", { profile: source.profile })}>{text.bytes(limit)} of a GPU</a> : `${text.bytes(limit)} of a GPU`}</>}
          , on a rank of the pipeline's stage that needs most
        </dd>
        {memoryParts(row).map(({ name, class: part, bytes }) => [
          <dt key={`${name} name`}><span class={`swatch ${part}`} aria-hidden="true" />{name}</dt>,
          <dd key={name}>{text.bytes(bytes)}, {text.percent(bytes / row.memoryBytes)}</dd>,
        ])}
        <dt>step</dt>
        <dd>{text.seconds(row.stepTimeS)}, {text.count(row.tokensPerS)} tokens/s{row.mfu > 0 && `, MFU ${text.percent(row.mfu)}`}; {text.seconds(row.gradientS)} of it gradients alone</dd>
        {row.moeLayerS > 0 && (
          <>
            <dt>MoE layer</dt>
            <dd>{toPlan(text.seconds(row.moeLayerS))} forward and backward on one micro-batch, {row.moeSchedule}{row.moePieces > 1 && ` in ${row.moePieces}`}: {row.schedule === "LANCET" ? "in one piece, around which Lancet's passes plan the step" : "the fastest that leaves room for the rest"}</dd>
          </>
        )}
        <dt>priced from</dt>
        <dd>
          {row.costs.length === 0 ? "costs that links predict alone" : (
            <>
              <CostList source={source} costs={row.costs} />
              {row.moeLayerS > 0 && "the MoE layer's first, what takes most of its time in front"}
            </>
          )}
        </dd>
        <dt>pipeline</dt>
        <dd>its slowest stage waits {text.percent(row.pipelineBubble)} of the time</dd>
        <dt>network</dt>
        <dd>joins {text.count(row.networkScale)} ranks at full rate{row.horizontalContexts && "; contexts lie across the experts' ranks"}</dd>
      </dl>
      <p class="muted">Memory is computed from the model and the layout, nothing of it is measured; workspace of kernels, collectives and the allocator is not counted.</p>
    </section>
  );
}
