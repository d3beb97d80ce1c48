import { useEffect, useState } from "preact/hooks";

import mixtral from "../../../../deploy/examples/mixtral-8x7b.config.json?raw";
import type { CallError } from "../../api/client";
import { Choice, NumberField } from "../../components/fields";
import { ProfileField } from "../../components/profile_field";
import { ModelChoice, ModelText } from "../../job/model_field";
import { useNamed } from "../../job/named";
import { setParams, type Params } from "../../route";
import { draftOf, fieldOf, modelOf, paramsOf, requestOf, sameDraft, type Draft } from "./request";

interface Props {
  params: Params;
  names: readonly string[];
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

export function Form({ params, names, error, loading, onAgain }: Props) {
  const [draft, setDraft] = useState<Draft>(() => draftOf(params));
  const [problem, setProblem] = useState("");
  const named = useNamed();
  // The address can change under the form: a step back in the history, a link. What it got from the form is the form's already.
  const addressed = draftOf(params);
  useEffect(() => {
    if (sameDraft(addressed, draft)) return;
    setDraft(addressed);
    setProblem("");
  }, [JSON.stringify(addressed)]);
  const refused = error === null ? null : fieldOf(error);
  const wrong = (field: keyof Draft): string => (refused === field ? error!.message : "");
  const change = (field: keyof Draft) => (value: string) => setDraft((before) => ({ ...before, [field]: value }));

  const submit = (event: Event): void => {
    event.preventDefault();
    const parsed = modelOf(draft);
    if ("problem" in parsed) return setProblem(parsed.problem);
    setProblem("");
    const wanted = paramsOf(draft, parsed.model);
    setParams({ ...wanted, layout: undefined });
    // The same question once more loads nothing by itself.
    if (JSON.stringify(requestOf(wanted)) === JSON.stringify(requestOf(params))) onAgain();
  };

  return (
    <form class="card" onSubmit={submit} aria-label="What to rank">
      <div class="model-choice">
        <ModelChoice label="Known model" names={named.data?.models ?? []} name={draft.modelName} onChange={(name) => { setProblem(""); change("modelName")(name); }} error={wrong("modelName")} />
      </div>
      {draft.modelName === "" && (
        <>
          <ModelText value={draft.model} onChange={(model) => { setProblem(""); change("model")(model); }} error={problem !== "" ? problem : wrong("model")} />
          <p class="example"><button type="button" onClick={() => { setProblem(""); change("model")(mixtral); }}>Example: Mixtral 8x7B</button></p>
        </>
      )}
      <fieldset>
        <legend>Training</legend>
        <NumberField label="GPUs" value={draft.gpus} onChange={change("gpus")} min={1} required error={wrong("gpus")} />
        <NumberField label="Global batch (samples)" value={draft.globalBatch} onChange={change("globalBatch")} min={1} required error={wrong("globalBatch")} />
        <NumberField label="Sequence length (tokens)" value={draft.sequenceLength} onChange={change("sequenceLength")} min={1} required error={wrong("sequenceLength")} />
        <Choice label="ZeRO stage" value={draft.zeroStage} onChange={change("zeroStage")} options={stages} error={wrong("zeroStage")} />
        <Choice label="Compute again" value={draft.recompute} onChange={change("recompute")} options={recomputes} error={wrong("recompute")} />
        <Choice label="Schedules" value={draft.lancet} onChange={change("lancet")} options={passes} error={wrong("lancet")} />
        <NumberField label="Layouts to show" value={draft.top} onChange={change("top")} min={1} max={draft.lancet === "1" ? 100 : 1000} required error={wrong("top")} />
        <ProfileField names={names} value={draft.profile} none="the newest" onChange={(profile) => setDraft((before) => ({ ...before, profile, version: "" }))} />
      </fieldset>
      <button type="submit" class="primary" disabled={loading}>Rank layouts</button>
    </form>
  );
}
