import { useEffect, useState } from "preact/hooks";

import type { ListNamedResponse } from "../../../generated/moeplan/v1/planner_service";
import type { CallError } from "../../api/client";
import { Choice, TextArea, TextField } from "../../components/fields";
import { axisNames, dispatcherAxes, type DispatcherAxis } from "../../job/dispatcher_axis";
import { JobFields } from "../../job/fields";
import { jobProblems } from "../../job/question";
import { setParams, type Params } from "../../route";
import { draftOf, fieldOf, layoutOf, paramsOf, requestOf, withChanges, type Draft } from "./question";

interface Props {
  params: Params;
  named: ListNamedResponse | null;
  profiles: readonly string[];
  /** What the planner refused of what the address asks. */
  error: CallError | null;
  loading: boolean;
  onAgain: () => void;
}

const paths = dispatcherAxes.map((value) => ({ value, text: axisNames[value] }));

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
    setDraft((before) => withChanges(before, changes));
  };

  const submit = (event: Event): void => {
    event.preventDefault();
    const layout = layoutOf(draft.layout);
    const found = { ...jobProblems(draft), ...("problem" in layout ? { layout: layout.problem } : {}) };
    setProblems(found);
    if (Object.keys(found).length > 0) return;
    const wanted = paramsOf(draft);
    setParams(wanted);
    // The same question once more loads nothing by itself.
    if (JSON.stringify(requestOf(wanted)) === JSON.stringify(requestOf(params))) onAgain();
  };

  return (
    <form class="card" onSubmit={submit} aria-label="What to compare">
      <div class="job-form">
        <JobFields draft={draft} onChange={change} named={named} profiles={profiles} wrong={wrong} gpusRequired />
        <fieldset>
          <legend>Layout, and what changes</legend>
          <Choice label="Along" value={draft.path} onChange={(path) => change({ path: path as DispatcherAxis })} options={paths} />
          <TextField label="Values, with commas between" value={draft.values} onChange={(values) => change({ values })} placeholder="1,2,4,8" error={wrong("values")} />
          <div class="whole-row">
            <TextArea
              label="Layout (JSON); its dispatcher is not read"
              value={draft.layout}
              onChange={(layout) => change({ layout })}
              placeholder={'{"expertParallel": 16}'}
              error={wrong("layout")}
            />
          </div>
        </fieldset>
      </div>
      <button type="submit" class="primary" disabled={loading}>Compare</button>
    </form>
  );
}
