// The samples of a curve as charts and tables want them: one list by rising size, with those that were set aside. Pure.
import { median } from "d3-array";

import * as text from "../../format";

import type { CurveSample, GetCurveResponse, RejectedCurveSample, SampleOrigin } from "../../../generated/moeplan/v1/profile_service";

export const sampleKinds = ["counted", "outlier", "retired", "set aside"] as const;
export type SampleKind = (typeof sampleKinds)[number];

export interface Item {
  kind: SampleKind;
  /** NaN where the sample has none that can be drawn. */
  size: number;
  /** Median of the repeats, in seconds; NaN likewise. */
  timeS: number;
  /** In the order taken. */
  repeats: readonly number[];
  /** Which of them the fit rejects as outliers, rising. */
  rejected: readonly number[];
  /** Of the model at this size, in seconds; null: it was not asked. */
  predictedS: number | null;
  /** measured/predicted − 1. */
  residual: number | null;
  ratePerS: number | null;
  /** Why it does not count; empty: it does. */
  reason: string;
  requestId: string;
  calibration: string;
  receivedAt: string;
  provenance: Readonly<Record<string, string>>;
}

function kindOf({ outlier, retired }: CurveSample): SampleKind {
  if (retired) return "retired";
  return outlier ? "outlier" : "counted";
}

function reasonOf(kind: SampleKind, { outlierRepeats: { length }, repeatsS, timeS, predictedS }: CurveSample): string {
  switch (kind) {
    case "counted": return "";
    case "outlier": {
      const many = `${length} of its ${repeatsS.length} ${repeatsS.length === 1 ? "repeat" : "repeats"} ${length === 1 ? "lies" : "lie"} outside of what the fit believes of this size`;
      return predictedS > 0 ? `${many}; its median is ${text.factor(timeS / predictedS)} the fit` : many;
    }
    case "retired": return "later samples of this cost stand in its place";
    case "set aside": return "";
  }
}

type Origin = Pick<Item, "requestId" | "calibration" | "receivedAt" | "provenance">;

const originOf = (origin: SampleOrigin | undefined): Origin => ({
  requestId: origin?.requestId ?? "",
  calibration: origin?.calibration ?? "",
  receivedAt: origin?.receivedAt ?? "",
  provenance: origin?.provenance ?? {},
});

function storedItem(one: CurveSample, origins: readonly SampleOrigin[]): Item {
  const kind = kindOf(one);
  return {
    kind,
    size: one.size,
    timeS: one.timeS,
    repeats: one.repeatsS,
    rejected: one.outlierRepeats,
    predictedS: one.predictedS,
    residual: one.predictedS > 0 ? one.timeS / one.predictedS - 1 : null,
    ratePerS: one.ratePerS,
    reason: reasonOf(kind, one),
    ...originOf(origins[one.origin]),
  };
}

/** What cannot be right may lack what every other sample has: a size, a time. */
function setAsideItem({ size: told, repeatsS, reason, origin }: RejectedCurveSample, origins: readonly SampleOrigin[]): Item {
  const repeats = (repeatsS as readonly unknown[]).filter((time): time is number => typeof time === "number");
  const positive = repeats.filter((time) => time > 0);
  const size: unknown = told;
  return {
    kind: "set aside",
    size: typeof size === "number" && size > 0 ? size : Number.NaN,
    timeS: median(positive) ?? Number.NaN,
    repeats,
    rejected: [],
    predictedS: null,
    residual: null,
    ratePerS: null,
    reason,
    ...originOf(origins[origin]),
  };
}

/** By rising size, then time; what has no size comes last. */
export function itemsOf({ samples, rejectedSamples, origins }: Pick<GetCurveResponse, "samples" | "rejectedSamples" | "origins">): Item[] {
  const last = (value: number): number => (Number.isNaN(value) ? Infinity : value);
  const order = (a: number, b: number): number => (a === b ? 0 : a - b);
  return [...samples.map((one) => storedItem(one, origins)), ...rejectedSamples.map((one) => setAsideItem(one, origins))].sort(
    (a, b) => order(last(a.size), last(b.size)) || order(last(a.timeS), last(b.timeS)),
  );
}

/** FNV-1a, of 32 bits. */
function digest(text: string): string {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; ++index) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  return (hash >>> 0).toString(36);
}

/** Of what a sample brought, which neither newer samples nor another fit change. */
const digestOf = ({ requestId, receivedAt, size, repeats }: Item): string => digest(JSON.stringify([requestId, receivedAt, size, repeats]));

/** What an address calls a sample; of equal ones the later has its number among them behind a dot. */
export function identityOf(items: readonly Item[], index: number): string {
  const item = items[index]!;
  const own = digestOf(item);
  const before = items.slice(0, index).filter((one) => Object.is(one.timeS, item.timeS) && digestOf(one) === own).length;
  return before === 0 ? own : `${own}.${before + 1}`;
}

/** Where the sample of that identity is; -1: not among these. */
export function indexOf(items: readonly Item[], identity: string): number {
  const [own, number = "1"] = identity.split(".");
  let met = 0;
  return items.findIndex((item) => digestOf(item) === own && ++met === Number(number));
}

export const isDrawn = ({ size, timeS }: Item): boolean => size > 0 && timeS > 0 && Number.isFinite(size) && Number.isFinite(timeS);

/** What many agents measure together is of their cluster. */
export const agentOf = ({ provenance }: Item): string =>
  provenance["agent"] ?? (provenance["fleet"] === undefined ? "–" : `those of ${provenance["fleet"]}`);
export const hostOf = ({ provenance }: Item): string => provenance["hostname"] ?? "–";
export const deviceOf = ({ provenance }: Item): string => provenance["device"] ?? provenance["backend"] ?? "–";
export const takenAtOf = ({ provenance, receivedAt }: Item): string => provenance["takenAt"] ?? receivedAt;

export interface SizeSummary {
  size: number;
  samples: number;
  lowest: number;
  median: number;
  highest: number;
}

/** The residuals of what counts, size by size. */
export function residualsBySize(items: readonly Item[]): SizeSummary[] {
  const bySize = new Map<number, number[]>();
  for (const { kind, size, residual } of items) {
    if (kind !== "counted" || residual === null) continue;
    const values = bySize.get(size);
    if (values === undefined) bySize.set(size, [residual]);
    else values.push(residual);
  }
  return [...bySize].map(([size, values]) => ({
    size,
    samples: values.length,
    lowest: Math.min(...values),
    median: median(values) ?? Number.NaN,
    highest: Math.max(...values),
  }));
}

/** How many of each kind there are. */
export function kindCounts(items: readonly Item[]): Record<SampleKind, number> {
  const counts: Record<SampleKind, number> = { counted: 0, outlier: 0, retired: 0, "set aside": 0 };
  for (const { kind } of items) ++counts[kind];
  return counts;
}
