// Inputs for a job: its model, the machines, and how much of it a step trains.
import type { ListNamedResponse } from "../../generated/moeplan/v1/planner_service";
import { Choice, NumberField, TextField } from "../components/fields";
import { ProfileField } from "../components/profile_field";
import * as text from "../format";
import { ModelChoice, ModelText } from "./model_field";
import { withDomains, type JobDraft } from "./question";
import "./form.css";

interface Props {
  draft: JobDraft;
  onChange: (changes: Partial<JobDraft>) => void;
  /** null: not known yet. */
  named: ListNamedResponse | null;
  profiles: readonly string[];
  /** What is wrong with an input; empty: nothing. */
  wrong: (field: keyof JobDraft) => string;
  /** Whether somebody has to say how many GPUs; otherwise the machines may say it. */
  gpusRequired: boolean;
}

export function JobFields({ draft, onChange, named, profiles, wrong, gpusRequired }: Props) {
  const set = (field: keyof JobDraft) => (value: string): void => onChange({ [field]: value });
  const hardwareError = wrong("hardware");
  // A refusal of hardware with a suffix is most likely of the suffix when the name is a known one.
  const isOfDomains = draft.domains !== "" && (named?.hardware.some(({ name }) => name === draft.hardware) ?? false);
  return (
    <fieldset>
      <legend>Job and machines</legend>
      <ModelChoice label="Model" names={named?.models ?? []} name={draft.modelName} onChange={set("modelName")} error={wrong("modelName")} />
      <Choice label="Hardware by name" value={draft.hardware} onChange={set("hardware")} options={hardwareOptions(named, draft.hardware)} error={isOfDomains ? "" : hardwareError} />
      {draft.hardware !== "" && (
        <TextField
          label="NVLink domains × GPUs"
          value={draft.domains}
          onChange={(domains) => onChange(withDomains(draft, domains))}
          placeholder="8x8, or none"
          error={isOfDomains ? hardwareError : ""}
        />
      )}
      {draft.hardware !== "" && (
        <div class="whole-row">
          <TextField label="Network between the domains (JSON), or none: one switch" value={draft.network} onChange={set("network")} placeholder={'{"nodesPerLeaf": 4, "oversubscription": 2}'} error={wrong("network")} />
        </div>
      )}
      <ProfileField names={profiles} value={draft.profile} none={draft.hardware === "" ? "the newest" : "none"} onChange={(profile) => onChange({ profile, version: "" })} />
      <NumberField label="GPUs" value={draft.gpus} onChange={set("gpus")} min={1} required={gpusRequired} error={wrong("gpus")} />
      <NumberField label="Global batch (samples)" value={draft.globalBatch} onChange={set("globalBatch")} min={1} required error={wrong("globalBatch")} />
      <NumberField label="Sequence length (tokens)" value={draft.sequenceLength} onChange={set("sequenceLength")} min={1} required error={wrong("sequenceLength")} />
      {draft.modelName === "" && <div class="whole-row"><ModelText value={draft.model} onChange={set("model")} error={wrong("model")} /></div>}
    </fieldset>
  );
}

/** A name that the planner does not know stands among them, too: it came with the address. */
function hardwareOptions(named: ListNamedResponse | null, name: string) {
  const known = (named?.hardware ?? []).map((one) => ({ value: one.name, text: `${one.name} (${text.bytes(one.deviceMemoryBytes)})` }));
  const all = name === "" || known.some(({ value }) => value === name) ? known : [{ value: name, text: name }, ...known];
  return [...all, { value: "", text: "none, a profile alone" }];
}
