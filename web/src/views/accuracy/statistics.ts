// How far runs are from what was predicted of them. Pure.
import type { Run } from "../../../generated/moeplan/v1/planner_service";
import * as interval from "../../interval";
import { signedError } from "../../signed_error";

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length === 0) return Number.NaN;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** Of rising values, the place of that below which `share` of them lie, by nearest rank. */
const placeOf = (share: number, count: number): number => Math.min(count - 1, Math.max(0, Math.ceil(share * count) - 1));

/** The value below which `share` of the values lie, by nearest rank. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length === 0 ? Number.NaN : sorted[placeOf(share, sorted.length)]!;
}

/** The run whose value is that quantile: of a median of two values, the smaller one's. null: there is no run. */
function runAt(runs: readonly Run[], valueOf: (run: Run) => number, share: number): number | null {
  const sorted = [...runs].sort((a, b) => valueOf(a) - valueOf(b));
  return sorted[placeOf(share, sorted.length)]?.run ?? null;
}

export interface ErrorSummary {
  count: number;
  /** Median and 95th percentile of |error|. */
  absoluteP50: number;
  absoluteP95: number;
  /** Median of the signed error. */
  bias: number;
  /** Of those that have an interval. */
  inside: number;
  withInterval: number;
  /** The runs that those figures are of. */
  runOf: { absoluteP50: number | null; absoluteP95: number | null; bias: number | null };
}

export const hasInterval = (run: Run): boolean => run.plan !== undefined && interval.hasInterval(run.plan);

export function isInside(run: Run): boolean {
  return hasInterval(run) && run.measuredTimeS >= run.plan!.lowS && run.measuredTimeS <= run.plan!.highS;
}

/** Runs whose times can be compared: both above 0. */
export const comparable = (runs: readonly Run[]): Run[] => runs.filter(({ predictedTimeS, measuredTimeS }) => predictedTimeS > 0 && measuredTimeS > 0);

export function summarize(runs: readonly Run[]): ErrorSummary {
  const signed = runs.map(signedError);
  const absolute = signed.map(Math.abs);
  const absoluteError = (run: Run): number => Math.abs(signedError(run));
  return {
    count: runs.length,
    absoluteP50: median(absolute),
    absoluteP95: quantile(absolute, 0.95),
    bias: median(signed),
    inside: runs.filter(isInside).length,
    withInterval: runs.filter(hasInterval).length,
    runOf: { absoluteP50: runAt(runs, absoluteError, 0.5), absoluteP95: runAt(runs, absoluteError, 0.95), bias: runAt(runs, signedError, 0.5) },
  };
}

export const scheduleOf = (run: Run): string => run.plan?.schedule ?? "UNSPECIFIED";

/** Where the profile was a file, it has no stored name. */
export const profileOf = (run: Run): string => (run.profileName === "" ? "(from a file)" : run.profileName);

/** By what `keyOf` says, most runs first; equally many by name. */
export function summariesBy(runs: readonly Run[], keyOf: (run: Run) => string): { key: string; summary: ErrorSummary }[] {
  const groups = new Map<string, Run[]>();
  for (const run of runs) {
    const key = keyOf(run);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [run]);
    else group.push(run);
  }
  return [...groups]
    .map(([key, members]) => ({ key, summary: summarize(members) }))
    .sort((a, b) => b.summary.count - a.summary.count || a.key.localeCompare(b.key));
}

export interface TimedError {
  atMs: number;
  error: number;
}

/** Medians of the errors of `groups` spans of time with equally many runs; each at its middle run's time. */
export function mediansOverTime(errors: readonly TimedError[], groups: number): TimedError[] {
  const sorted = [...errors].sort((a, b) => a.atMs - b.atMs);
  const size = Math.max(5, Math.ceil(sorted.length / groups));
  const medians: TimedError[] = [];
  for (let from = 0; from + size <= sorted.length; from += size) {
    const group = sorted.slice(from, from + size);
    medians.push({ atMs: group[group.length >> 1]!.atMs, error: median(group.map(({ error }) => error)) });
  }
  return medians;
}
