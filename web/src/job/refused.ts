// Which input of a form the planner refuses. Pure.
import type { CallError } from "../api/client";

/**
 * The input that a refusal names, by what requests call it in `inputs`. What is wrong inside of a field is named as the
 * field's own text has it, after "model:" or the like. null: none of them.
 */
export function refusedInput<Input extends string>({ field, message }: Pick<CallError, "field" | "message">, inputs: Readonly<Record<string, Input>>): Input | null {
  for (const text of [field, message]) {
    const first = text.split(/[.[:]/)[0]!;
    if (Object.hasOwn(inputs, first)) return inputs[first]!;
  }
  return null;
}
