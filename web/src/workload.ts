// Workloads as JSON texts that people type, and which swept paths are theirs. Pure.

export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json };
export type JsonObject = { readonly [key: string]: Json };
/** As it is asked: what it holds is the planner's to judge. */
export type WorkloadJson = JsonObject;

export const isObject = (value: Json | undefined): value is JsonObject => typeof value === "object" && value !== null && !Array.isArray(value);

/** The object of a JSON text; an error says what it is instead of `what`, such as "A workload". */
export function parseObject(text: string, what: string): { value: JsonObject } | { problem: string } {
  let value: Json;
  try {
    value = JSON.parse(text) as Json;
  } catch (problem) {
    return { problem: `Not JSON: ${(problem as Error).message}` };
  }
  return isObject(value) ? { value } : { problem: `${what} is a JSON object.` };
}

export type ParsedWorkload = { workload: WorkloadJson } | { problem: string };

export function parseWorkload(text: string): ParsedWorkload {
  const parsed = parseObject(text, "A workload");
  return "problem" in parsed ? parsed : { workload: parsed.value };
}

const profilePaths = /^(cluster|collectives|kernels)(\.|\[|$)/;

/** Whether a swept path is a field of the workload rather than of the profile, which a plan's question cannot change. */
export const isWorkloadPath = (path: string): boolean => !profilePaths.test(path);
