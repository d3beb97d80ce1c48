// Between a Workload's JSON and the texts of a form. What the form does not know stays as it is: the planner is the one
// to refuse it. Pure.
import { isObject, type Json, type WorkloadJson } from "../../workload";
import { fields, type Field } from "./fields";

/** The texts of the form's fields by path; "true" and "false" of flags. */
export type Texts = Readonly<Record<string, string>>;

export function valueAt(workload: WorkloadJson, path: string): Json | undefined {
  let value: Json | undefined = workload;
  for (const key of path.split(".")) {
    if (!isObject(value)) return undefined;
    value = Object.hasOwn(value, key) ? value[key] : undefined;
  }
  return value;
}

/** The same with the value at a path; undefined takes it away, and objects that it leaves empty with it. */
export function withValue(workload: WorkloadJson, path: string, value: Json | undefined): WorkloadJson {
  const [key = "", ...rest] = path.split(".");
  const copy: Record<string, Json> = { ...workload };
  let next = value;
  if (rest.length > 0) {
    const inner = withValue(isObject(workload[key]) ? workload[key] : {}, rest.join("."), value);
    next = value === undefined && Object.keys(inner).length === 0 ? undefined : inner;
  }
  if (next === undefined) delete copy[key];
  else copy[key] = next;
  return copy;
}

function textOf(field: Field, value: Json | undefined): string {
  if (value === undefined || value === null) return field.kind === "flag" ? "false" : field.kind === "choice" ? field.fallback : "";
  if (Array.isArray(value)) return value.map(String).join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export const textsOf = (workload: WorkloadJson): Texts =>
  Object.fromEntries(fields.map((field) => [field.path, textOf(field, valueAt(workload, field.path))]));

const number = (text: string): number | null => {
  const value = Number(text);
  return text.trim() === "" || !Number.isFinite(value) ? null : value;
};

/** What is wrong with a text on the face of it; empty: nothing. What a value must be is the planner's to say. */
export function problemOf(field: Field, text: string): string {
  if (field.kind === "list") {
    const wrong = text.split(/[\s,]+/).find((part) => part !== "" && number(part) === null);
    return wrong === undefined ? "" : `${wrong} is not a number`;
  }
  if (field.kind !== "number") return "";
  if (text.trim() === "") return field.fallback === "required" ? "needed" : "";
  const value = number(text);
  if (value === null) return "not a number";
  return field.whole && !Number.isInteger(value) ? "not a whole number" : "";
}

function valueOf(field: Field, text: string): Json | undefined {
  switch (field.kind) {
    case "flag": return text === "true" ? true : undefined;
    case "choice": return text === field.fallback ? undefined : text;
    case "text": return text === "" ? undefined : text;
    case "list": {
      const parts = text.split(/[\s,]+/).filter((part) => part !== "");
      return parts.length === 0 ? undefined : parts.map(Number);
    }
    case "number": return text.trim() === "" ? undefined : (number(text) ?? text);
  }
}

/** The workload that `texts` make of `base`: fields that say what they said keep what stands there. */
export function workloadOf(base: WorkloadJson, texts: Texts): WorkloadJson {
  let workload = base;
  for (const field of fields) {
    const text = texts[field.path] ?? "";
    if (text !== textOf(field, valueAt(base, field.path))) workload = withValue(workload, field.path, valueOf(field, text));
  }
  return workload;
}

/** The form's field that an error names: the planner says "workload.layer.batch" or "layer.batch"; empty: none of ours. */
export function fieldOfError(name: string): string {
  const path = name.replace(/^(request: )?(workload\.)?/, "").replace(/\[\d+\]$/, "");
  return fields.some((field) => field.path === path) ? path : "";
}

/** What an import answered: a model without experts has no workload. */
export function importedWorkload(answer: { workload?: object | null | undefined; layers: number }): { workload: WorkloadJson } | { problem: string } {
  if (answer.workload === undefined || answer.workload === null) return { problem: `This model is dense: none of its ${answer.layers} layers has experts.` };
  return { workload: Object.fromEntries(Object.entries(answer.workload)) };
}

/** The layer and the name of an imported model in place of those of the workload; how it runs stays. */
export function withLayerOf(workload: WorkloadJson, imported: WorkloadJson): WorkloadJson {
  const layer = imported["layer"];
  let result = isObject(layer) ? { ...workload, layer } : workload;
  const name = imported["name"];
  result = withValue(result, "name", typeof name === "string" && name !== "" ? name : undefined);
  return withValue(result, "routing", undefined);
}
