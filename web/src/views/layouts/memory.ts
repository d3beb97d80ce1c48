// What a rank's memory holds, part by part. Pure.
import type { RankedLayout, RankMemory } from "../../../generated/moeplan/v1/report";

export interface MemoryPart {
  /** Class that sets --c. */
  class: string;
  name: string;
  bytes: number;
}

const parts: readonly { of: keyof RankMemory; class: string; name: string }[] = [
  { of: "stateBytes", class: "memory-states", name: "weights, gradients, optimizer states" },
  { of: "keptBytes", class: "memory-kept", name: "activations kept for the backward pass" },
  { of: "runningBytes", class: "memory-running", name: "buffers of the layer that runs" },
  { of: "logitBytes", class: "memory-logits", name: "logits and loss" },
  { of: "otherBytes", class: "memory-other", name: "spare gradients of weights" },
];

/** All of them, in the order in which bars stack them. */
export const memoryParts = ({ memory }: Pick<RankedLayout, "memory">): MemoryPart[] =>
  parts.map(({ of, ...part }) => ({ ...part, bytes: memory![of] }));

/** The layout of that rank, from 1 on; null: the address names none, or none of these. */
export function chosenOf<Row extends { rank: number }>(rows: readonly Row[], param: string | undefined): Row | null {
  return rows.find(({ rank }) => String(rank) === param) ?? null;
}
