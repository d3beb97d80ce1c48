// The axes of a sweep: "PATH=VALUE,VALUE". Pure.

export interface Axis {
  path: string;
  /** As they are typed. */
  values: readonly string[];
}

export const mostAxes = 3;
/** Of one answer of the planner. */
export const mostPoints = 4096;

/** Splits as the planner does; whether path and values are good is the planner's to say. */
export function parseAxis(text: string): Axis {
  const at = text.indexOf("=");
  if (at < 0) return { path: text.trim(), values: [] };
  return { path: text.slice(0, at).trim(), values: splitValues(text.slice(at + 1)) };
}

export function splitValues(text: string): string[] {
  return text.trim() === "" ? [] : text.split(",").map((value) => value.trim());
}

export const axisText = ({ path, values }: Axis): string => `${path}=${values.join(",")}`;

export const countOf = (axes: readonly Axis[]): number => axes.reduce((points, { values }) => points * values.length, 1);

/** Sweeps of at most `most` points each where axes allow it, that one after the other give the points of all, in order. */
export function slices(axes: readonly Axis[], most: number): Axis[][] {
  const cut = axes.findIndex(({ values }) => values.length > 1);
  const points = countOf(axes);
  if (points <= most || cut < 0) return [[...axes]];
  const { path, values } = axes[cut]!;
  const step = Math.max(1, Math.floor(most / (points / values.length)));
  const parts: Axis[][] = [];
  for (let from = 0; from < values.length; from += step) {
    const part = axes.map((axis, index) => (index === cut ? { path, values: values.slice(from, from + step) } : axis));
    parts.push(...slices(part, most));
  }
  return parts;
}

/** Where the point at these values stands, the last axis fastest. */
export function pointAt(axes: readonly Axis[], at: readonly number[]): number {
  return axes.reduce((index, { values }, axis) => index * values.length + (at[axis] ?? 0), 0);
}

/** The other way round. */
export function valuesAt(axes: readonly Axis[], point: number): number[] {
  const at: number[] = [];
  let rest = point;
  for (let axis = axes.length - 1; axis >= 0; --axis) {
    const { length } = axes[axis]!.values;
    at[axis] = rest % length;
    rest = Math.floor(rest / length);
  }
  return at;
}

/** Which axis a refusal names: "axes[1]" is 1. null: none. */
export function axisOf(field: string): number | null {
  const match = /^axes\[(\d+)\]/.exec(field);
  return match === null ? null : Number(match[1]);
}

/** What an axis may be, with values to begin with. */
export const suggestions: readonly Axis[] = [
  { path: "layer.sequenceLength", values: ["1024", "2048", "4096", "8192", "16384"] },
  { path: "layer.batch", values: ["1", "2", "4", "8"] },
  { path: "layer.topK", values: ["1", "2", "4"] },
  { path: "layer.capacityFactor", values: ["1", "1.25", "1.5", "2"] },
  { path: "layer.experts", values: ["8", "16", "32", "64"] },
  { path: "layer.modelDim", values: ["1024", "2048", "4096"] },
  { path: "layer.hiddenDim", values: ["2048", "4096", "8192", "14336"] },
  { path: "layer.bytesPerElement", values: ["2", "4"] },
  { path: "layout.tensorParallel", values: ["1", "2", "4"] },
  { path: "layout.expertParallel", values: ["1", "2", "4"] },
  { path: "layout.expertShardingParallel", values: ["1", "2", "4"] },
  { path: "layout.contextParallel", values: ["1", "2"] },
  { path: "phase", values: ["FORWARD", "BACKWARD", "TRAINING"] },
  { path: "maxChunks", values: ["1", "2", "4", "8"] },
  { path: "maxPartitionDegree", values: ["1", "2", "4", "8"] },
  { path: "minChunkBytes", values: ["65536", "1048576", "4194304"] },
  { path: "allowLossy", values: ["false", "true"] },
  { path: "routing.skew", values: ["0", "0.5", "1"] },
  { path: "gradientBytes", values: ["0", "67108864", "268435456"] },
  { path: "cluster.nodes", values: ["2", "4", "8"] },
  { path: "cluster.nic.scale", values: ["0.5", "1", "2", "4"] },
  { path: "collectives[ALL_TO_ALL].timeScale", values: ["0.5", "1", "2"] },
  { path: "collectives[ALL_GATHER].timeScale", values: ["0.5", "1", "2"] },
  { path: "collectives[ALL_REDUCE].timeScale", values: ["0.5", "1", "2"] },
  { path: "collectives[REDUCE_SCATTER].timeScale", values: ["0.5", "1", "2"] },
  { path: "kernels[EXPERT_GEMM].timeScale", values: ["0.5", "1", "2"] },
];
