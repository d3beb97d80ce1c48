// Inputs with their labels, and what is wrong with them beside them.
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

import "./fields.css";

interface FieldProps {
  label: string;
  value: string;
  onChange: (value: string) => void;
  /** What is wrong; empty: nothing. */
  error?: string;
}

function Wrong({ id, error }: { id: string; error: string }) {
  return error === "" ? null : <span id={id} class="field-error">{error}</span>;
}

const wrongness = (id: string, error: string) => (error === "" ? {} : { "aria-invalid": "true" as const, "aria-describedby": id });

interface NumberProps extends FieldProps {
  min?: number;
  max?: number;
  /** Default: whole numbers. */
  step?: number | "any";
  required?: boolean;
}

export function NumberField({ label, value, onChange, error = "", min, max, step = 1, required }: NumberProps) {
  const id = useId();
  return (
    <label>
      {label}
      <input
        type="number"
        inputMode="decimal"
        value={value}
        min={min}
        max={max}
        step={step}
        required={required}
        onInput={(event) => onChange(event.currentTarget.value)}
        {...wrongness(id, error)}
      />
      <Wrong id={id} error={error} />
    </label>
  );
}

interface TextProps extends FieldProps {
  /** Id of a datalist. */
  list?: string;
  placeholder?: string;
}

export function TextField({ label, value, onChange, error = "", list, placeholder }: TextProps) {
  const id = useId();
  return (
    <label>
      {label}
      <input
        type="text"
        value={value}
        list={list}
        placeholder={placeholder}
        spellcheck={false}
        autocomplete="off"
        onInput={(event) => onChange(event.currentTarget.value)}
        {...wrongness(id, error)}
      />
      <Wrong id={id} error={error} />
    </label>
  );
}

export function TextArea({ label, value, onChange, error = "", placeholder }: TextProps) {
  const id = useId();
  return (
    <label>
      {label}
      <textarea
        value={value}
        placeholder={placeholder}
        spellcheck={false}
        onInput={(event) => onChange(event.currentTarget.value)}
        {...wrongness(id, error)}
      />
      <Wrong id={id} error={error} />
    </label>
  );
}

interface ChoiceProps extends FieldProps {
  options: readonly { value: string; text: string }[];
}

export function Choice({ label, value, onChange, error = "", options }: ChoiceProps) {
  const id = useId();
  return (
    <label>
      {label}
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)} {...wrongness(id, error)}>
        {options.map((option) => <option key={option.value} value={option.value}>{option.text}</option>)}
      </select>
      <Wrong id={id} error={error} />
    </label>
  );
}

export function CheckBox({ checked, onChange, children }: { checked: boolean; onChange: (checked: boolean) => void; children: ComponentChildren }) {
  return (
    <label class="check">
      <input type="checkbox" checked={checked} onChange={(event) => onChange(event.currentTarget.checked)} />
      {children}
    </label>
  );
}
