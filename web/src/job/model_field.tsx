// Which model: one that the planner knows by its name, or a pasted config.json.
import { Choice, TextArea } from "../components/fields";

interface Props {
  /** What the choice of a name is called. */
  label: string;
  names: readonly string[];
  /** Empty: the pasted one counts. */
  name: string;
  onChange: (name: string) => void;
  /** What is wrong with the name; empty: nothing. */
  error: string;
}

/** A name that the planner does not know stands in the choice, too: it came with the address. */
const optionsOf = (names: readonly string[], name: string) =>
  (name === "" || names.includes(name) ? names : [name, ...names]).map((value) => ({ value, text: value }));

export function ModelChoice({ label, names, name, onChange, error }: Props) {
  const options = [...optionsOf(names, name), { value: "", text: "a pasted config.json" }];
  return <Choice label={label} value={name} onChange={onChange} options={options} error={error} />;
}

interface TextProps {
  value: string;
  onChange: (model: string) => void;
  error: string;
}

export function ModelText({ value, onChange, error }: TextProps) {
  return <TextArea label="Model: the config.json of Hugging Face" value={value} onChange={onChange} placeholder={'{"model_type": …}'} error={error} />;
}
