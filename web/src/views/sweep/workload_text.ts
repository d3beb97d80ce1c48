// A workload as JSON text, and its fields by path. Pure.

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };
type JsonObject = { readonly [key: string]: Json };

export type ParsedWorkload = { workload: JsonObject } | { problem: string };

export function parseWorkload(text: string): ParsedWorkload {
  let parsed: Json;
  try {
    parsed = JSON.parse(text) as Json;
  } catch (problem) {
    return { problem: `Not JSON: ${(problem as Error).message}` };
  }
  return isObject(parsed) ? { workload: parsed } : { problem: 'Expected a JSON object with "layer" and "layout"' };
}

export const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const profilePaths = /^(cluster|collectives|kernels)(\.|\[|$)/;

/** Whether a swept path is a field of the workload rather than of the profile. */
export const isWorkloadPath = (path: string): boolean => !profilePaths.test(path);

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
export function withField(workload: JsonObject, path: string, value: Json): JsonObject {
  return setAt(workload, stepsOf(path), value) as JsonObject;
}

export function fieldAt(workload: JsonObject, path: string): Json | undefined {
  let value: Json | undefined = workload;
  for (const step of stepsOf(path)) {
    if (typeof step === "number") value = Array.isArray(value) ? (value as Json[])[step] : undefined;
    else value = isObject(value) && Object.hasOwn(value, step) ? value[step] : undefined;
  }
  return value;
}

export interface WorkloadAtPoint {
  workload: JsonObject;
  /** Paths of the profile, which no workload holds. */
  left: string[];
}

/** The workload of a swept point: what its fields say, set where they are the workload's. */
export function workloadAt(workload: JsonObject, fields: Readonly<Record<string, Json>>): WorkloadAtPoint {
  let at = workload;
  const left: string[] = [];
  for (const [path, value] of Object.entries(fields)) {
    if (isWorkloadPath(path)) at = withField(at, path, value);
    else left.push(path);
  }
  return { workload: at, left };
}
