import { useEffect, useState } from "preact/hooks";

import mixtral from "../../../../deploy/examples/mixtral-8x7b.config.json?raw";
import type { ListNamedResponse } from "../../../generated/moeplan/v1/planner_service";
import type { CallError } from "../../api/client";
import { Choice, NumberField } from "../../components/fields";
import { JobFields } from "../../job/fields";
import { jobProblems } from "../../job/question";
import { setParams, type Params } from "../../route";
import { draftOf, fieldOf, paramsOf, requestOf, type Draft } from "./request";

interface Props {
  params: Params;
  named: ListNamedResponse | null;
  profiles: readonly string[];
  /** What the planner refused of what the address asks. */
  error: CallError | null;
  loading: boolean;
  onAgain: () => void;
}

const stages = ["0", "1", "2", "3"].map((value) => ({ value, text: value === "0" ? "0 (none)" : value }));
const recomputes = [
  { value: "NONE", text: "nothing" },
  { value: "SELECTIVE", text: "attention scores" },
  { value: "FULL", text: "all but the input" },
];

const passes = [
  { value: "", text: "of layers" },
  { value: "1", text: "Lancet's, too" },
];

export function Form({ params, named, profiles, error, loading, onAgain }: Props) {
  const [draft, setDraft] = useState<Draft>(() => draftOf(params));
  const [problems, setProblems] = useState<Partial<Record<keyof Draft, string>>>({});
  // The address can change under the form: a step back in the history, a link. What it got from the form is the form's already.
  const addressed = JSON.stringify(paramsOf(draftOf(params)));
  useEffect(() => {
    if (addressed === JSON.stringify(paramsOf(draft))) return;
    setDraft(draftOf(params));
    setProblems({});
  }, [addressed]);
  const refused = error === null ? null : fieldOf(error);
  const wrong = (field: keyof Draft): string => problems[field] ?? (refused === field ? error!.message : "");
  const change = (changes: Partial<Draft>): void => {
    setProblems({});
    setDraft((before) => ({ ...before, ...changes }));
  };
  const set = (field: keyof Draft) => (value: string): void => change({ [field]: value });

  const submit = (event: Event): void => {
    event.preventDefault();
    const found = jobProblems(draft);
    setProblems(found);
    if (Object.keys(found).length > 0) return;
    const wanted = paramsOf(draft);
    setParams({ ...wanted, layout: undefined });
    // The same question once more loads nothing by itself.
    if (JSON.stringify(requestOf(wanted)) === JSON.stringify(requestOf(params))) onAgain();
  };

  return (
    <form class="card" onSubmit={submit} aria-label="What to rank">
      <div class="job-form">
        <JobFields draft={draft} onChange={change} named={named} profiles={profiles} wrong={wrong} gpusRequired />
        <fieldset>
          <legend>Layouts</legend>
          <Choice label="ZeRO stage" value={draft.zeroStage} onChange={set("zeroStage")} options={stages} error={wrong("zeroStage")} />
          <Choice label="Compute again" value={draft.recompute} onChange={set("recompute")} options={recomputes} error={wrong("recompute")} />
          <Choice label="Schedules" value={draft.lancet} onChange={set("lancet")} options={passes} error={wrong("lancet")} />
          <NumberField label="Layouts to show" value={draft.top} onChange={set("top")} min={1} max={draft.lancet === "1" ? 100 : 1000} required error={wrong("top")} />
        </fieldset>
      </div>
      {draft.modelName === "" && <p class="example"><button type="button" onClick={() => change({ model: mixtral })}>Example: Mixtral 8x7B</button></p>}
      <button type="submit" class="primary" disabled={loading}>Rank layouts</button>
    </form>
  );
}
