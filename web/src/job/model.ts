// The model of a job as a pasted config.json of Hugging Face. Pure.
import { parseObject } from "../workload";

export type ParsedModel = { model: Record<string, unknown> } | { problem: string };

/** A config.json is an object; what stands in it is the planner's to judge. */
export function parseModel(json: string): ParsedModel {
  if (json.trim() === "") return { problem: "Paste the model's config.json here" };
  const parsed = parseObject(json, "A config.json");
  return "problem" in parsed ? parsed : { model: parsed.value };
}

/** JSON with each field in a line of its own; what is no JSON stays as it is. */
export function indented(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

/** JSON without spaces, as addresses hold it; what is no JSON stays as it is. */
export function compact(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json));
  } catch {
    return json;
  }
}
