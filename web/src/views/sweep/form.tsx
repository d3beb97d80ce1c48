import { useEffect, useId, useState } from "preact/hooks";

import type { CallError } from "../../api/client";
import { CheckBox, NumberField, TextArea, TextField } from "../../components/fields";
import { ProfileField } from "../../components/profile_field";
import * as text from "../../format";
import { setParams, type Params } from "../../route";
import { parseWorkload, type ParsedWorkload } from "../../workload";
import { axisOf, countOf, splitValues, suggestions } from "../../sweep/axes";
import { example } from "./example";
import { askedOf, draftOf, paramsOf, type Draft } from "./question";
import { fieldAt, withField } from "./workload_text";

interface Props {
  params: Params;
  names: readonly string[];
  /** What the planner refused of what the address asks. */
  error: CallError | null;
  onAgain: () => void;
}

const commonFields: readonly { path: string; label: string; step?: "any" }[] = [
  { path: "layer.batch", label: "Batch" },
  { path: "layer.sequenceLength", label: "Sequence length" },
  { path: "layer.modelDim", label: "Model dimension" },
  { path: "layer.hiddenDim", label: "Hidden dimension" },
  { path: "layer.experts", label: "Experts" },
  { path: "layer.topK", label: "Top-k" },
  { path: "layer.capacityFactor", label: "Capacity factor", step: "any" },
  { path: "layout.tensorParallel", label: "Tensor parallel" },
  { path: "layout.expertParallel", label: "Expert parallel" },
  { path: "layout.expertShardingParallel", label: "Expert sharding" },
];

export function Form({ params, names, error, onAgain }: Props) {
  const [draft, setDraft] = useState<Draft>(() => draftOf(params, example));
  const [tried, setTried] = useState(false);
  // The address can change under the form: a step back in the history, a link. What it got from the form is the form's already.
  const addressed = JSON.stringify(paramsOf(draftOf(params, example)));
  useEffect(() => {
    if (addressed === JSON.stringify(paramsOf(draft))) return;
    setDraft(draftOf(params, example));
    setTried(false);
  }, [addressed]);
  const parsed = parseWorkload(draft.workload);
  const refusedAxis = error === null ? null : axisOf(error.field);
  const change = (changes: Partial<Draft>): void => setDraft((before) => ({ ...before, ...changes }));
  const noAxis = draft.axes.every(({ path, values }) => path.trim() === "" && values.trim() === "");
  const workloadError = "problem" in parsed ? parsed.problem : error !== null && error.field !== "" && refusedAxis === null && !/^(axes|profile)/.test(error.field) ? error.message : "";

  const submit = (event: Event): void => {
    event.preventDefault();
    setTried(true);
    if ("problem" in parsed || noAxis) return;
    const wanted = paramsOf(draft);
    setParams(wanted);
    // The same question once more sweeps nothing by itself.
    if (askedOf(wanted) === askedOf(params)) onAgain();
  };
  const changeAxis = (index: number, changes: Partial<Draft["axes"][number]>): void =>
    change({ axes: draft.axes.map((axis, other) => (other === index ? { ...axis, ...changes } : axis)) });

  return (
    <form class="card" onSubmit={submit} aria-label="What to sweep">
      <div class="sweep-form">
        <div>
          <TextArea label="Workload (JSON)" value={draft.workload} onChange={(workload) => change({ workload })} error={workloadError} />
          <p class="example"><button type="button" onClick={() => change({ workload: example })}>Example workload</button></p>
        </div>
        <CommonFields parsed={parsed} onChange={(workload) => change({ workload })} />
      </div>
      {draft.axes.map((axis, index) => (
        <AxisFields
          key={index}
          number={index + 1}
          axis={axis}
          error={refusedAxis === index ? error!.message : tried && noAxis && index === 0 ? "Name a field to change, and its values" : ""}
          onChange={(changes) => changeAxis(index, changes)}
        />
      ))}
      <div class="row">
        <ProfileField names={names} value={draft.profile} none="the newest" onChange={(profile) => change({ profile, version: "" })} />
        <CheckBox checked={draft.extrapolate} onChange={(extrapolate) => change({ extrapolate })}>
          Estimate costs that were not measured
        </CheckBox>
        <button type="submit" class="primary">Sweep {text.count(pointsOf(draft))} points</button>
      </div>
    </form>
  );
}

function pointsOf(draft: Draft): number {
  const used = draft.axes.filter(({ path, values }) => path.trim() !== "" || values.trim() !== "");
  return used.length === 0 ? 0 : countOf(used.map(({ path, values }) => ({ path, values: splitValues(values) })));
}

function CommonFields({ parsed, onChange }: { parsed: ParsedWorkload; onChange: (workload: string) => void }) {
  if ("problem" in parsed) return null;
  const { workload } = parsed;
  const set = (path: string, typed: string): void => {
    if (typed === "") return;
    onChange(JSON.stringify(withField(workload, path, Number(typed)), null, 2));
  };
  return (
    <fieldset>
      <legend>Often changed</legend>
      {commonFields.map(({ path, label, step }) => (
        <NumberField
          key={path}
          label={label}
          value={String(fieldAt(workload, path) ?? "")}
          onChange={(value) => set(path, value)}
          min={step === "any" ? 0 : 1}
          {...(step === undefined ? {} : { step })}
        />
      ))}
    </fieldset>
  );
}

interface AxisProps {
  number: number;
  axis: Draft["axes"][number];
  error: string;
  onChange: (changes: Partial<Draft["axes"][number]>) => void;
}

function AxisFields({ number, axis, error, onChange }: AxisProps) {
  const list = useId();
  const setPath = (path: string): void => {
    const suggested = suggestions.find((one) => one.path === path);
    // Values that were typed stay.
    onChange(suggested !== undefined && axis.values.trim() === "" ? { path, values: suggested.values.join(",") } : { path });
  };
  return (
    <fieldset class="axis">
      <legend>Axis {number}</legend>
      <TextField label="Field" value={axis.path} onChange={setPath} list={list} placeholder="layer.sequenceLength" error={error} />
      <TextField label="Values, with commas between" value={axis.values} onChange={(values) => onChange({ values })} placeholder="1024,2048,4096" />
      <datalist id={list}>{suggestions.map(({ path }) => <option key={path} value={path} />)}</datalist>
    </fieldset>
  );
}
