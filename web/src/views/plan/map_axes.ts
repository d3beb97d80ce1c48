// The axes of the map of winners: which fields, which values, and a point's workload. Pure.
import { isWorkloadPath, type WorkloadJson } from "../../workload";
import { valueAt, withValue } from "./workload_form";

export const xPath = "layer.sequenceLength";
export const mostX = 15;
export const mostY = 10;

interface Choice {
  path: string;
  label: string;
}

export const yChoices: readonly Choice[] = [
  { path: "layer.batch", label: "batch (layer.batch)" },
  { path: "layer.topK", label: "top-k (layer.topK)" },
  { path: "layer.hiddenDim", label: "hidden dim (layer.hiddenDim)" },
  { path: "layer.modelDim", label: "model dim (layer.modelDim)" },
  { path: "layer.experts", label: "experts (layer.experts)" },
  { path: "layer.capacityFactor", label: "capacity (layer.capacityFactor)" },
  { path: "layout.expertParallel", label: "expert parallel (layout.expertParallel)" },
  { path: "layout.tensorParallel", label: "tensor parallel (layout.tensorParallel)" },
  { path: "layout.expertShardingParallel", label: "expert sharding (layout.expertShardingParallel)" },
  { path: "maxChunks", label: "most chunks (maxChunks)" },
  { path: "routing.skew", label: "routing skew (routing.skew)" },
  { path: "cluster.nic.scale", label: "network speed (cluster.nic.scale)" },
  { path: "collectives[ALL_TO_ALL].timeScale", label: "all-to-all time (collectives[ALL_TO_ALL].timeScale)" },
  { path: "collectives[ALL_GATHER].timeScale", label: "all-gather time (collectives[ALL_GATHER].timeScale)" },
  { path: "kernels[EXPERT_GEMM].timeScale", label: "expert time (kernels[EXPERT_GEMM].timeScale)" },
];

const numberAt = (workload: WorkloadJson, path: string, fallback: number): number => {
  const value = valueAt(workload, path);
  return typeof value === "number" && Number.isFinite(value) && value > 0 ? value : fallback;
};

const powers = (low: number, high: number): number[] => {
  const values: number[] = [];
  for (let value = low; value <= high; value *= 2) values.push(value);
  return values;
};

/** Values around those of the workload. */
export function defaultValues(workload: WorkloadJson, path: string): number[] {
  const experts = numberAt(workload, "layer.experts", 8);
  switch (path) {
    case "layer.topK": return [1, 2, 3, 4, 6, 8].filter((k) => k <= experts);
    case "layer.capacityFactor": return [0.5, 0.75, 1, 1.25, 1.5, 2, 4];
    case "routing.skew": return [0, 0.25, 0.5, 0.75, 1, 1.5];
    case "layout.expertParallel": return powers(1, 64).filter((degree) => experts % degree === 0);
    case "layout.tensorParallel":
    case "layout.expertShardingParallel": return [1, 2, 4, 8];
  }
  if (path.endsWith(".timeScale") || path.endsWith(".scale")) return [0.25, 0.5, 1, 2, 4];
  const now = numberAt(workload, path, 1);
  if (path === xPath) return [-4, -3, -2, -1, 0, 1, 2, 3, 4].map((step) => now * 2 ** step).filter((value) => value >= 1 && Number.isInteger(value));
  const low = Math.max(1, now / 4);
  return powers(Number.isInteger(low) ? low : now, now * 16).slice(0, 6);
}

/** "1, 2, 4" as numbers; an error says what is wrong on the face of it. */
export function parseValues(text: string, most: number): { values: number[] } | { problem: string } {
  const parts = text.split(/[\s,]+/).filter((part) => part !== "");
  const wrong = parts.find((part) => !Number.isFinite(Number(part)));
  if (wrong !== undefined) return { problem: `${wrong} is not a number` };
  if (parts.length === 0) return { problem: "needs at least one value" };
  if (parts.length > most) return { problem: `${parts.length} values, and at most ${most} are drawn` };
  if (new Set(parts.map(Number)).size < parts.length) return { problem: "a value stands there twice" };
  return { values: parts.map(Number) };
}

/** The workload at a point; what does not belong to workloads is left out. */
export function atPoint(workload: WorkloadJson, point: Readonly<Record<string, number>>): WorkloadJson {
  let result = workload;
  for (const [path, value] of Object.entries(point)) {
    if (isWorkloadPath(path)) result = withValue(result, path, value);
  }
  return result;
}
