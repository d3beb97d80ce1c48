// The question: a workload as fields, as JSON, or with the layer of a Hugging Face model.
import { useEffect, useId, useRef, useState } from "preact/hooks";

import type { ImportModelResponse } from "../../../generated/moeplan/v1/planner_service";
import { call, CallError } from "../../api/client";
import { ErrorNote } from "../../components/notes";
import { parseObject, parseWorkload, type WorkloadJson } from "../../workload";
import { example } from "./example";
import { fields, groups, type Field } from "./fields";
import { fieldOfError, importedWorkload, problemOf, textsOf, withLayerOf, workloadOf, type Texts } from "./workload_form";

interface FieldProps {
  field: Field;
  text: string;
  /** What is wrong with it; empty: nothing. */
  problem: string;
  onText: (text: string) => void;
}

function FieldInput({ field, text, problem, onText }: FieldProps) {
  const id = useId();
  const wrong = problem !== "" ? { "aria-invalid": true, "aria-describedby": `${id}-problem` } : {};
  const label = field.unit === undefined ? field.label : `${field.label}, ${field.unit}`;
  const told = problem !== "" && <span class="field-problem" id={`${id}-problem`}>{problem}</span>;
  if (field.kind === "flag") {
    return (
      <div class="field">
        <label>
          <input type="checkbox" data-field={field.path} checked={text === "true"} {...wrong} onChange={(event) => onText(String(event.currentTarget.checked))} />
          {field.label}
        </label>
        {told}
      </div>
    );
  }
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {field.kind === "choice" ? (
        <select id={id} data-field={field.path} value={text} {...wrong} onChange={(event) => onText(event.currentTarget.value)}>
          {(field.options.includes(text) ? field.options : [text, ...field.options]).map((option) => <option key={option} value={option}>{option}</option>)}
        </select>
      ) : (
        <input
          id={id}
          data-field={field.path}
          type="text"
          inputMode={field.kind === "number" ? (field.whole ? "numeric" : "decimal") : "text"}
          autocomplete="off"
          spellcheck={false}
          placeholder={field.fallback}
          value={text}
          {...wrong}
          onInput={(event) => onText(event.currentTarget.value)}
        />
      )}
      {told}
    </div>
  );
}

function Import({ onLayer }: { onLayer: (workload: WorkloadJson, told: string) => void }) {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState<CallError | null>(null);
  const [asking, setAsking] = useState(false);
  // What is typed into the form while the planner is asked stays.
  const onLayerNow = useRef(onLayer);
  onLayerNow.current = onLayer;
  const fill = async (): Promise<void> => {
    setProblem(null);
    const model = parseObject(text, "A config.json");
    if ("problem" in model) {
      setProblem(new CallError(model.problem, "INVALID_ARGUMENT"));
      return;
    }
    setAsking(true);
    try {
      const answer = await call<ImportModelResponse>("PlannerService/ImportModel", { model: model.value });
      const imported = importedWorkload(answer);
      if ("problem" in imported) {
        setProblem(new CallError(imported.problem, "INVALID_ARGUMENT"));
        return;
      }
      onLayerNow.current(imported.workload, `Layer taken: ${answer.moeLayers} of ${answer.layers} layers of the model have experts.`);
    } catch (failure) {
      setProblem(failure instanceof CallError ? failure : new CallError(String(failure), "UNKNOWN"));
    } finally {
      setAsking(false);
    }
  };
  return (
    <details>
      <summary>From a Hugging Face config.json</summary>
      <label>
        config.json of a model with experts
        <textarea spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <p><button type="button" disabled={asking || text.trim() === ""} onClick={() => void fill()}>{asking ? "Asking …" : "Fill in its layer"}</button></p>
      {problem !== null && <ErrorNote error={problem} />}
    </details>
  );
}

function AsJson({ workload, onWorkload }: { workload: WorkloadJson; onWorkload: (workload: WorkloadJson) => void }) {
  const [edited, setEdited] = useState<string | null>(null);
  const [problem, setProblem] = useState("");
  const id = useId();
  const use = (): void => {
    const parsed = parseWorkload(edited ?? "");
    if ("problem" in parsed) {
      setProblem(parsed.problem);
      return;
    }
    setProblem("");
    setEdited(null);
    onWorkload(parsed.workload);
  };
  return (
    <details>
      <summary>As JSON</summary>
      <label>
        Workload, as <code>moeplan plan --workload</code> reads it
        <textarea
          spellcheck={false}
          value={edited ?? JSON.stringify(workload, null, 2)}
          aria-invalid={problem !== ""}
          aria-describedby={problem === "" ? undefined : id}
          onInput={(event) => setEdited(event.currentTarget.value)}
        />
      </label>
      {problem !== "" && <p class="field-problem" id={id}>{problem}</p>}
      <p><button type="button" disabled={edited === null} onClick={use}>Use this JSON</button></p>
    </details>
  );
}

interface Props {
  /** What is asked now; null: nothing yet, and the form shows the example. */
  asked: WorkloadJson | null;
  /** Of the last answer. */
  error: CallError | null;
  loading: boolean;
  onPlan: (workload: WorkloadJson) => void;
}

export function WorkloadForm({ asked, error, loading, onPlan }: Props) {
  const [base, setBase] = useState<WorkloadJson>(asked ?? example);
  const [texts, setTexts] = useState<Texts>(() => textsOf(asked ?? example));
  const [touched, setTouched] = useState(false);
  const [told, setTold] = useState("");
  const form = useRef<HTMLFormElement>(null);
  const submitted = useRef(false);
  const wanted = workloadOf(base, texts);

  const show = (workload: WorkloadJson): void => {
    setBase(workload);
    setTexts(textsOf(workload));
  };
  // The address can change under the form: a cell of the map, a step back in the history.
  const askedText = JSON.stringify(asked);
  useEffect(() => {
    if (asked !== null && askedText !== JSON.stringify(wanted)) show(asked);
  }, [askedText]);

  const isAsked = asked !== null && askedText === JSON.stringify(wanted);
  const refused = isAsked && error !== null ? fieldOfError(error.field) : "";
  const problems = new Map<string, string>();
  for (const field of fields) {
    const problem = problemOf(field, texts[field.path] ?? "");
    if (problem !== "" && touched) problems.set(field.path, problem);
  }
  if (refused !== "" && error !== null) problems.set(refused, error.found === "" ? error.message : `found ${error.found}, expected ${error.expected}`);
  const wrongBehind = fields.some((field) => !field.front && problems.has(field.path));
  const [moreOpen, setMoreOpen] = useState(false);
  useEffect(() => {
    if (wrongBehind) setMoreOpen(true);
  }, [wrongBehind]);
  useEffect(() => {
    if (!submitted.current || error === null || refused === "") return;
    submitted.current = false;
    form.current?.querySelector<HTMLElement>(`[data-field="${refused}"]`)?.focus();
  }, [error, refused]);

  const submit = (event: Event): void => {
    event.preventDefault();
    setTouched(true);
    const wrong = fields.find((field) => problemOf(field, texts[field.path] ?? "") !== "");
    if (wrong !== undefined) {
      if (!wrong.front) setMoreOpen(true);
      form.current?.querySelector<HTMLElement>(`[data-field="${wrong.path}"]`)?.focus();
      return;
    }
    submitted.current = true;
    onPlan(wanted);
  };
  const inputs = (list: readonly Field[]) => list.map((field) => (
    <FieldInput
      key={field.path}
      field={field}
      text={texts[field.path] ?? ""}
      problem={problems.get(field.path) ?? ""}
      onText={(text) => setTexts((before) => ({ ...before, [field.path]: text }))}
    />
  ));
  const fieldset = (front: boolean) => groups.map(({ title, fields: all }) => {
    const list = all.filter((field) => (field.front === true) === front);
    return list.length > 0 && <fieldset key={title}><legend>{title}</legend>{inputs(list)}</fieldset>;
  });

  return (
    <form ref={form} class="workload-form" aria-label="Workload" noValidate onSubmit={submit}>
      {fieldset(true)}
      <details open={moreOpen} onToggle={(event) => setMoreOpen(event.currentTarget.open)}>
        <summary>More fields</summary>
        {fieldset(false)}
      </details>
      <div class="row form-end">
        <button type="submit" class="primary" disabled={loading && isAsked}>{loading && isAsked ? "Planning …" : "Plan"}</button>
        <button type="button" class="quiet" onClick={() => { show(example); setTouched(false); setTold(""); }}>Example</button>
      </div>
      <p class="muted" role="status">{told !== "" ? told : asked !== null && !isAsked ? "Changed since the plan that is shown." : ""}</p>
      <AsJson workload={wanted} onWorkload={(workload) => { show(workload); setTold("Taken from the JSON; Plan asks for it."); }} />
      <Import onLayer={(imported, words) => { show(withLayerOf(wanted, imported)); setTold(words); }} />
    </form>
  );
}
