// All candidates: as bars of what their time is made of, and as a table.
import { useMemo, useState } from "preact/hooks";

import type { Plan } from "../../../generated/moeplan/v1/plan";
import { Bars, type Bar } from "../../charts/bars";
import { familyClass } from "../../charts/colors";
import { PagedTable, type SortableColumn } from "../../components/paged_table";
import { describePlan } from "../../describe";
import * as text from "../../format";
import { hasInterval } from "../../interval";
import { isBaseline } from "./names";
import { interval, partsOf } from "./plan_facts";

const firstBars = 8;

function barOf(plan: Plan, index: number): Bar {
  const { computeS, exposedS, restS } = partsOf(plan);
  return {
    key: index,
    name: `${index + 1}. ${describePlan(plan)}${isBaseline(plan.schedule) ? " (baseline)" : ""}`,
    parts: [
      { class: "stream-compute", value: computeS },
      { class: "stream-inter", value: exposedS, hatched: true },
      { class: "bars-rest", value: restS },
    ],
    strip: { class: "stream-inter", value: plan.communicationTimeS },
    low: plan.lowS,
    high: plan.highS,
    told: text.seconds(plan.predictedTimeS),
  };
}

/** Whether no candidate before is of the same baseline. */
const isFirstBaseline = (candidates: readonly Plan[], index: number): boolean => {
  const { schedule } = candidates[index]!;
  return isBaseline(schedule) && candidates.findIndex((plan) => plan.schedule === schedule) === index;
};

interface Ranked {
  plan: Plan;
  index: number;
}

function columnsFor(shown: number, onShow: (index: number) => void): SortableColumn<Ranked>[] {
  const time = (id: string, head: string, of: (plan: Plan) => number): SortableColumn<Ranked> => ({
    id, head, numeric: true, cell: ({ plan }) => text.seconds(of(plan)), sortKey: ({ plan }) => of(plan),
  });
  return [
    {
      id: "candidate",
      head: "Candidate",
      cell: ({ plan, index }) => (
        <button type="button" class="pick" aria-pressed={index === shown} onClick={() => onShow(index)}>
          <span class={`swatch ${familyClass(plan.schedule)}`} aria-hidden="true" />{describePlan(plan)}
        </button>
      ),
      sortKey: ({ plan }) => describePlan(plan),
    },
    { id: "place", head: "Place", numeric: true, cell: ({ index }) => index + 1, sortKey: ({ index }) => index },
    { id: "baseline", head: "Baseline", cell: ({ plan }) => (isBaseline(plan.schedule) ? <span class="badge">baseline</span> : ""), sortKey: ({ plan }) => (isBaseline(plan.schedule) ? 0 : 1) },
    time("time", "Predicted", (plan) => plan.predictedTimeS),
    { id: "interval", head: "90 % interval", numeric: true, cell: ({ plan }) => (hasInterval(plan) ? interval(plan) : "not known") },
    time("communication", "Communication", (plan) => plan.communicationTimeS),
    time("exposed", "Exposed", (plan) => plan.exposedCommunicationS),
    time("compute", "Compute", (plan) => plan.computeTimeS),
    { id: "memory", head: "Memory", numeric: true, cell: ({ plan }) => text.bytes(plan.memoryBytes), sortKey: ({ plan }) => plan.memoryBytes },
  ];
}

interface Props {
  candidates: readonly Plan[];
  shown: number;
  onShow: (index: number) => void;
  /** Of the table; empty: best first. */
  sort: string;
  onSort: (sort: string) => void;
}

export function Candidates({ candidates, shown, onShow, sort, onSort }: Props) {
  const [all, setAll] = useState(false);
  const ranked = useMemo(() => candidates.map((plan, index) => ({ plan, index })), [candidates]);
  const bars = useMemo(() => candidates.map(barOf), [candidates]);
  const few = bars.filter((_, index) => all || index < firstBars || index === shown || isFirstBaseline(candidates, index));
  const first = candidates[0];
  if (first === undefined) return null;
  return (
    <section class="card candidates" aria-labelledby="plan-candidates">
      <h2 id="plan-candidates">Candidates</h2>
      <ul class="legend">
        <li><span class="swatch stream-compute" aria-hidden="true" />compute</li>
        <li><span class="swatch candidate-exposed" aria-hidden="true" />exposed communication</li>
        <li><span class="swatch bars-rest" aria-hidden="true" />the rest: copies, waiting, gradients after the layer</li>
        <li>strip: all communication</li>
        <li>whisker: 90 % interval, where one is known</li>
      </ul>
      <Bars
        summary={`Predicted times of ${candidates.length} candidates; the best is ${describePlan(first)} with ${text.seconds(first.predictedTimeS)}.`}
        bars={few}
        format={text.seconds}
        axisLabel="predicted time"
        current={shown}
        onPick={(key) => onShow(Number(key))}
      />
      {bars.length > few.length || all ? (
        <p><button type="button" class="quiet" onClick={() => setAll(!all)}>{all ? "Fewer bars" : `All ${bars.length} bars`}</button></p>
      ) : null}
      <PagedTable
        caption="Candidates, best first; a button shows its timeline"
        columns={columnsFor(shown, onShow)}
        rows={ranked}
        keyOf={({ index }) => index}
        sort={sort}
        onSort={onSort}
        isCurrent={({ index }) => index === shown}
      />
    </section>
  );
}
