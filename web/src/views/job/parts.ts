// What the memory and the step of compared layouts consist of. Pure.
import type { Advice } from "../../../generated/moeplan/v1/advice";
import type { StepMemory, StepResult } from "../../../generated/moeplan/v1/step";
import type { LabelledBar } from "../../charts/labelled_bars";
import * as text from "../../format";
import { mineName } from "./words";

/** A layout that figures show. */
export interface Compared {
  key: number;
  name: string;
  step: StepResult;
}

/** The answer, then what it is compared with, unless that is the same, then the next best; those that have a step. */
export function comparedOf(advice: Pick<Advice, "step" | "mine" | "mineIsUsual" | "mineIsSame" | "runnerUp">): Compared[] {
  const all: readonly { name: string; step: StepResult | undefined }[] = [
    { name: "the answer", step: advice.step },
    { name: mineName(advice), step: advice.mineIsSame ? undefined : advice.mine?.step },
    { name: "the next best", step: advice.runnerUp?.step },
  ];
  return all.flatMap(({ name, step }, key) => (step === undefined ? [] : [{ key, name, step }]));
}

/** A part of memory or of a step. */
export interface Part {
  /** Class that sets --c. */
  class: string;
  name: string;
  /** Its value in each of the compared layouts, in their order. */
  values: number[];
}

const memoryNames: readonly { of: keyof StepMemory; name: string }[] = [
  { of: "weights", name: "weights" },
  { of: "gradients", name: "gradients" },
  { of: "optimizer", name: "optimizer states" },
  { of: "activations", name: "activations kept for the backward pass" },
  { of: "buffers", name: "buffers of the layer that runs" },
  { of: "logits", name: "logits and loss" },
  { of: "other", name: "spare gradients of weights" },
];

const isThere = ({ values }: Part): boolean => values.some((value) => value > 0);

/** Parts of the memory that some of the layouts have, in the order in which bars stack them. */
export function memoryParts(compared: readonly Compared[]): Part[] {
  return memoryNames
    .map(({ of, name }) => ({ class: `job-memory-${of}`, name, values: compared.map(({ step }) => step.memory?.[of] ?? 0) }))
    .filter(isThere);
}

const stepNames: Readonly<Record<string, string>> = {
  attention: "attention",
  denseNetworks: "dense networks",
  moeLayers: "MoE layers",
  sharedExperts: "shared experts",
  elementwise: "norms and other elementwise work",
  logits: "logits",
  loss: "loss",
  tensorExchange: "exchanges of tensor parallelism",
  contextExchange: "exchanges of context parallelism",
  pipelineExchange: "exchanges between pipeline stages",
  weights: "weights from other replicas",
  gradients: "gradients between replicas",
  optimizer: "optimizer",
  hostLaunches: "launches by the host",
  bubble: "pipeline bubble",
};

/** Parts of the step by how much longer it is for them: those that lengthen some of the layouts' steps, in the planner's order. */
export function stepParts(compared: readonly Compared[]): Part[] {
  const seen = new Set(compared.flatMap(({ step }) => step.parts.map(({ part }) => part)));
  const known = Object.keys(stepNames).filter((part) => seen.has(part));
  const others = [...seen].filter((part) => !Object.hasOwn(stepNames, part));
  return [...known, ...others]
    .map((of) => ({
      class: Object.hasOwn(stepNames, of) ? `job-step-${of}` : "job-step-unknown",
      name: Object.hasOwn(stepNames, of) ? stepNames[of]! : of,
      values: compared.map(({ step }) => Math.max(0, step.parts.find(({ part }) => part === of)?.exposedS ?? 0)),
    }))
    .filter(isThere);
}

/** `told`: what stands beside a bar's name. */
function barsOf(compared: readonly Compared[], parts: readonly Part[], told: (step: StepResult) => string): LabelledBar[] {
  return compared.map(({ key, name, step }, index) => {
    const own = parts.map((part) => ({ class: part.class, value: part.values[index]! }));
    return { key, label: name, value: own.reduce((sum, { value }) => sum + value, 0), parts: own, valueText: told(step) };
  });
}

/** "64.8 GiB, 9.7 GiB free". `limit`: memory of a GPU; 0: not known. */
export function memoryWords(bytes: number, limit: number): string {
  if (!(limit > 0)) return text.bytes(bytes);
  return `${text.bytes(bytes)}, ${bytes <= limit ? `${text.bytes(limit - bytes)} free` : `${text.bytes(bytes - limit)} too much`}`;
}

export const memoryBars = (compared: readonly Compared[], parts: readonly Part[], limit: number): LabelledBar[] =>
  barsOf(compared, parts, ({ memoryBytes }) => memoryWords(memoryBytes, limit));

export const stepBars = (compared: readonly Compared[], parts: readonly Part[]): LabelledBar[] =>
  barsOf(compared, parts, ({ stepTimeS }) => text.seconds(stepTimeS));
