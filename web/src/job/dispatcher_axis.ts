// What a comparison of dispatchers goes along, with values to begin with. Pure.
import { axisText } from "../sweep/axes";

export const dispatcherAxes = ["microBatch", "expertParallel", "gpus", "expertImbalance"] as const;
export type DispatcherAxis = (typeof dispatcherAxes)[number];

export const axisNames: Readonly<Record<DispatcherAxis, string>> = {
  microBatch: "micro-batch",
  expertParallel: "ranks of experts",
  gpus: "GPUs",
  expertImbalance: "expert imbalance",
};

const usual: Readonly<Record<DispatcherAxis, readonly number[]>> = {
  microBatch: [1, 2, 4, 8],
  expertParallel: [4, 8, 16, 32, 64],
  gpus: [1, 2, 4],
  expertImbalance: [1, 1.2, 1.5, 2, 3],
};

/** Values to begin with over so many GPUs; 0: not known. */
export function usualValues(path: DispatcherAxis, gpus: number): string[] {
  const values = usual[path];
  if (path === "gpus") return values.map((times) => String(times * Math.max(1, gpus)));
  if (path !== "expertParallel" || !(gpus > 0)) return values.map(String);
  const that = values.filter((ranks) => ranks <= gpus);
  return (that.length > 1 ? that : [1, 2, 4].filter((ranks) => ranks <= gpus)).map(String);
}

/** The axis as addresses and requests have it. */
export const axisOf = (path: DispatcherAxis, gpus: number): string => axisText({ path, values: usualValues(path, gpus) });

export const isDispatcherAxis = (path: string): path is DispatcherAxis => (dispatcherAxes as readonly string[]).includes(path);
