import { useEffect, useState } from "preact/hooks";

import type { ListNamedResponse } from "../../../generated/moeplan/v1/planner_service";
import type { CallError } from "../../api/client";
import { CheckBox, Choice, NumberField, TextArea } from "../../components/fields";
import { JobFields } from "../../job/fields";
import { jobProblems } from "../../job/question";
import { setParams, type Params } from "../../route";
import { draftOf, fieldOf, paramsOf, requestOf, usualTarget, type Draft } from "./question";

interface Props {
  params: Params;
  named: ListNamedResponse | null;
  profiles: readonly string[];
  /** What the planner refused of what the address asks. */
  error: CallError | null;
  loading: boolean;
  onAgain: () => void;
}

const precisions = [
  { value: "", text: "as in my flags, else BF16" },
  ...["BF16", "FP8", "MXFP8", "NVFP4"].map((value) => ({ value, text: value })),
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
  const target = named?.targets.find(({ name }) => name === draft.to);

  const submit = (event: Event): void => {
    event.preventDefault();
    const found = jobProblems(draft);
    setProblems(found);
    if (Object.keys(found).length > 0) return;
    const wanted = paramsOf(draft);
    setParams(wanted);
    // The same question once more loads nothing by itself.
    if (JSON.stringify(requestOf(wanted)) === JSON.stringify(requestOf(params))) onAgain();
  };

  return (
    <form class="card" onSubmit={submit} aria-label="My job">
      <div class="job-form">
        <JobFields draft={draft} onChange={change} named={named} profiles={profiles} wrong={wrong} gpusRequired={false} />
        <fieldset>
          <legend>Software, and what runs now</legend>
          <Choice label="Training system" value={draft.to} onChange={(to) => change({ to })} options={targetOptions(named, draft.to)} error={wrong("to")} />
          <Choice label="Precision" value={draft.precision} onChange={(precision) => change({ precision })} options={precisions} error={wrong("precision")} />
          <NumberField label="Measured step (s)" value={draft.measuredStepS} onChange={(measuredStepS) => change({ measuredStepS })} min={0} step="any" error={wrong("measuredStepS")} />
          <div class="whole-row">
            <TextArea
              label={`My flags: ${target?.takesFile === true ? "a settings file" : "a launch script or its flags"}, or a layout as JSON; may stay empty`}
              value={draft.mine}
              onChange={(mine) => change({ mine })}
              placeholder={draft.to === usualTarget ? "--expert-model-parallel-size 8 --micro-batch-size 1" : '{"expertParallel": 8, "microBatch": 1}'}
              error={wrong("mine")}
            />
          </div>
          {draft.mine.trim() !== "" && (target?.live.length ?? 0) > 0 && (
            <div class="whole-row">
              <CheckBox checked={draft.liveOnly} onChange={(liveOnly) => change({ liveOnly })}>Change only what {target!.title} takes without a restart: {target!.live.join(", ")}</CheckBox>
            </div>
          )}
        </fieldset>
      </div>
      <button type="submit" class="primary" disabled={loading}>Ask</button>
    </form>
  );
}

/** One that the planner does not know stands among them, too: it came with the address. */
function targetOptions(named: ListNamedResponse | null, to: string) {
  const known = (named?.targets ?? []).map(({ name, title, version }) => ({ value: name, text: `${title} ${version}` }));
  return known.some(({ value }) => value === to) ? known : [{ value: to, text: to }, ...known];
}
