// What the answer's memory and step consist of, beside those that it is compared with.
import type { AdviseResponse } from "../../../generated/moeplan/v1/planner_service";
import { AsTable } from "../../charts/as_table";
import { LabelledBars } from "../../charts/labelled_bars";
import { Table } from "../../components/table";
import * as text from "../../format";
import { comparedOf, memoryBars, memoryParts, memoryWords, stepBars, stepParts, type Compared, type Part } from "./parts";

export function Figures({ answer }: { answer: AdviseResponse }) {
  if (answer.result === undefined) return null;
  const compared = comparedOf(answer.result);
  return (
    <div class="pair">
      <MemoryFigure compared={compared} limit={answer.deviceMemoryBytes} />
      <StepFigure compared={compared} />
    </div>
  );
}

/** "the answer 2.31 s, the usual default 2.91 s". */
const listed = (compared: readonly Compared[], told: (one: Compared) => string): string => compared.map((one) => `${one.name} ${told(one)}`).join(", ");

function MemoryFigure({ compared, limit }: { compared: readonly Compared[]; limit: number }) {
  const parts = memoryParts(compared);
  const known = limit > 0;
  return (
    <section class="card" aria-labelledby="job-memory-title">
      <h2 id="job-memory-title">Memory of one GPU</h2>
      <Legend parts={parts} />
      <LabelledBars
        summary={`Memory of one GPU: ${listed(compared, ({ step }) => memoryWords(step.memoryBytes, limit))}; the table below has the parts.`}
        bars={memoryBars(compared, parts, limit)}
        {...(known ? { limit: { value: limit, text: `limit ${text.bytes(limit)}` } } : {})}
      />
      {!known && <p class="muted">It is not known how much memory a GPU has, so every layout counts as fitting.</p>}
      <PartTable caption="Memory of one GPU by its parts" compared={compared} parts={parts} format={text.bytes} whole={({ memoryBytes }) => memoryBytes} />
    </section>
  );
}

function StepFigure({ compared }: { compared: readonly Compared[] }) {
  const parts = stepParts(compared);
  return (
    <section class="card" aria-labelledby="job-step-title">
      <h2 id="job-step-title">Time of a training step</h2>
      <Legend parts={parts} />
      <LabelledBars
        summary={`Time of a training step: ${listed(compared, ({ step }) => text.seconds(step.stepTimeS))}; the table below has the parts.`}
        bars={stepBars(compared, parts)}
      />
      <PartTable caption="The step by how much longer it is for each part" compared={compared} parts={parts} format={text.seconds} whole={({ stepTimeS }) => stepTimeS} />
    </section>
  );
}

function Legend({ parts }: { parts: readonly Part[] }) {
  return <ul class="legend">{parts.map(({ name, class: part }) => <li key={name}><span class={`swatch ${part}`} aria-hidden="true" />{name}</li>)}</ul>;
}

interface TableProps {
  caption: string;
  compared: readonly Compared[];
  parts: readonly Part[];
  format: (value: number) => string;
  whole: (step: Compared["step"]) => number;
}

function PartTable({ caption, compared, parts, format, whole }: TableProps) {
  const rows = [...parts.map(({ name, values }) => ({ name, values })), { name: "together", values: compared.map(({ step }) => whole(step)) }];
  return (
    <AsTable>
      {() => (
        <Table
          caption={caption}
          columns={[
            { head: "part", cell: ({ name }) => name },
            ...compared.map((one, index) => ({ head: one.name, numeric: true, cell: ({ values }: (typeof rows)[number]) => format(values[index]!) })),
          ]}
          rows={rows}
          keyOf={({ name }) => name}
        />
      )}
    </AsTable>
  );
}
