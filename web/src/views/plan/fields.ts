// The fields of a Workload as a form shows them: proto/moeplan/v1/workload.proto says what they mean.

interface Common {
  /** Into the workload's JSON. */
  path: string;
  label: string;
  /** What stands where nothing is filled in: the planner's default. */
  fallback: string;
  unit?: string;
  /** Among the fields that are always in sight. */
  front?: boolean;
}
export interface NumberField extends Common {
  kind: "number";
  whole: boolean;
}
export interface ChoiceField extends Common {
  kind: "choice";
  options: readonly string[];
}
export interface FlagField extends Common {
  kind: "flag";
}
export interface TextField extends Common {
  kind: "text";
}
/** Numbers with commas or spaces between them. */
export interface ListField extends Common {
  kind: "list";
}
export type Field = NumberField | ChoiceField | FlagField | TextField | ListField;

export interface FieldGroup {
  title: string;
  fields: readonly Field[];
}

const whole = (path: string, label: string, fallback: string, more: Partial<NumberField> = {}): NumberField => ({ kind: "number", whole: true, path, label, fallback, ...more });
const real = (path: string, label: string, fallback: string, more: Partial<NumberField> = {}): NumberField => ({ kind: "number", whole: false, path, label, fallback, ...more });
const choice = (path: string, label: string, options: readonly string[], more: Partial<ChoiceField> = {}): ChoiceField => ({
  kind: "choice", path, label, options, fallback: options[0]!, ...more,
});
const flag = (path: string, label: string): FlagField => ({ kind: "flag", path, label, fallback: "no" });

const codecs = ["NONE", "FP16", "BF16", "FP8", "INT8", "ZFP", "FP8_BLOCKWISE"] as const;
const required = "required";
const front = { front: true } as const;

export const groups: readonly FieldGroup[] = [
  {
    title: "Layer",
    fields: [
      whole("layer.batch", "Batch B", required, { ...front, unit: "samples" }),
      whole("layer.sequenceLength", "Sequence L", required, { ...front, unit: "tokens" }),
      whole("layer.modelDim", "Model dim M", required, { ...front, unit: "elements" }),
      whole("layer.hiddenDim", "Hidden dim H", required, { ...front, unit: "elements" }),
      whole("layer.experts", "Experts E", required, front),
      whole("layer.topK", "Top-k", required, front),
      real("layer.capacityFactor", "Capacity f", "0", { ...front, unit: "0: dropless" }),
      real("layer.receiveFactor", "Dropless rows at most", "0", { unit: "of an even share" }),
      whole("layer.bytesPerElement", "Element", "2", { unit: "bytes" }),
      whole("layer.expertMatrices", "Expert matrices", "2"),
      choice("layer.gate", "Gate", ["TOP_K", "SWITCH", "BATCH_PRIORITIZED", "EXPERT_CHOICE", "RANDOM", "HASH"]),
      choice("layer.expertKind", "Expert kind", ["FFN"]),
      whole("layer.sharedHiddenDim", "Shared expert H", "0", { unit: "elements" }),
      real("layer.auxLossCoefficient", "Balance loss", "0"),
      real("layer.zLossCoefficient", "Router z-loss", "0"),
      flag("layer.expertBias", "Expert biases"),
      real("layer.swigluLimit", "SwiGLU limit", "0"),
    ],
  },
  {
    title: "Router of a TOP_K gate",
    fields: [
      choice("layer.router.scoreFunction", "Scores", ["SOFTMAX", "SIGMOID"]),
      real("layer.router.weightScale", "Weights times", "1"),
      whole("layer.router.expertGroups", "Groups", "1"),
      whole("layer.router.groupsPerToken", "Groups per token", "all"),
      flag("layer.router.rawWeights", "Weights not normalised"),
      flag("layer.router.correctionBias", "Choices corrected"),
      flag("layer.router.bias", "Biases of logits"),
      flag("layer.router.weighsInput", "Weights on inputs"),
    ],
  },
  {
    title: "Layout",
    fields: [
      whole("layout.tensorParallel", "Tensor (MP)", "1", { ...front, unit: "ranks" }),
      whole("layout.expertParallel", "Expert (EP)", "1", { ...front, unit: "ranks" }),
      whole("layout.expertShardingParallel", "Sharding (ESP)", "1", { ...front, unit: "ranks" }),
      whole("layout.contextParallel", "Context (CP)", "1", { unit: "ranks" }),
      whole("layout.pipelineParallel", "Stages (PP)", "1"),
      whole("layout.dataParallel", "Data (DP)", "what fills", { unit: "ranks" }),
    ],
  },
  {
    title: "What the answer may use",
    fields: [
      choice("phase", "Phase", ["FORWARD", "BACKWARD", "TRAINING"], front),
      whole("maxChunks", "Most chunks N", "64", front),
      whole("maxPartitionDegree", "Most partitions r", "8"),
      real("minChunkBytes", "Smallest chunk", "1048576", { unit: "bytes" }),
      choice("dispatchCodec", "Codec there", codecs),
      choice("combineCodec", "Codec back", codecs),
      choice("capacityPassing", "Capacity passing", ["EXACT", "PADDED"]),
      flag("allowLossy", "Lossy codecs allowed"),
      flag("namedCodecsOnly", "No codecs but these"),
    ],
  },
  {
    title: "Training memory and gradients",
    fields: [
      whole("zeroStage", "ZeRO stage", "not counted"),
      choice("recompute", "Computed again", ["NONE", "SELECTIVE", "FULL"]),
      real("gradientBytes", "Dense gradients", "0", { unit: "bytes" }),
      flag("sequenceParallel", "Sequence parallel"),
    ],
  },
  {
    title: "Routing and name",
    fields: [
      real("routing.skew", "Zipf skew s", "even"),
      { kind: "list", path: "routing.tokensPerExpert", label: "Tokens per expert", fallback: "even" },
      { kind: "text", path: "name", label: "Name", fallback: "none" },
    ],
  },
];

export const fields: readonly Field[] = groups.flatMap((group) => group.fields);
