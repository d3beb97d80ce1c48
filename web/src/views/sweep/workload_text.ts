// A workload's fields by path. Pure.
import { isObject, isWorkloadPath, type Json, type WorkloadJson } from "../../workload";

/** "routing.tokensPerExpert[2]" as its names and numbers. */
function stepsOf(path: string): (string | number)[] {
  return path.split(/[.[]/).map((step) => (step.endsWith("]") ? Number(step.slice(0, -1)) : step));
}

function setAt(value: Json | undefined, steps: readonly (string | number)[], to: Json): Json {
  const [step, ...rest] = steps;
  if (step === undefined) return to;
  if (typeof step === "number") {
    const items: Json[] = Array.isArray(value) ? [...(value as Json[])] : [];
    items[step] = setAt(items[step], rest, to);
    return items;
  }
  const object = isObject(value) ? value : {};
  // A computed key, so that "__proto__" is a name like any other.
  return { ...object, [step]: setAt(Object.hasOwn(object, step) ? object[step] : undefined, rest, to) };
}

/** The workload with one field changed. */
export function withField(workload: WorkloadJson, path: string, value: Json): WorkloadJson {
  return setAt(workload, stepsOf(path), value) as WorkloadJson;
}

export function fieldAt(workload: WorkloadJson, path: string): Json | undefined {
  let value: Json | undefined = workload;
  for (const step of stepsOf(path)) {
    if (typeof step === "number") value = Array.isArray(value) ? (value as Json[])[step] : undefined;
    else value = isObject(value) && Object.hasOwn(value, step) ? value[step] : undefined;
  }
  return value;
}

export interface WorkloadAtPoint {
  workload: WorkloadJson;
  /** Paths of the profile, which no workload holds. */
  left: string[];
}

/** The workload of a swept point: what its fields say, set where they are the workload's. */
export function workloadAt(workload: WorkloadJson, fields: Readonly<Record<string, Json>>): WorkloadAtPoint {
  let at = workload;
  const left: string[] = [];
  for (const [path, value] of Object.entries(fields)) {
    if (isWorkloadPath(path)) at = withField(at, path, value);
    else left.push(path);
  }
  return { workload: at, left };
}
