import { scaleLinear, scaleLog } from "d3-scale";
import { describe, expect, it } from "vitest";

import { ticksOf } from "../../src/charts/frame";
import { nearestPoint } from "../../src/charts/nearest";
import { compareCurves, readCurve } from "../../src/views/curves/compare";
import { costGroups, numberOf } from "../../src/views/curves/costs";
import { domainsOf, kept } from "../../src/views/curves/domains";
import { placed, timeMarks, type Mark } from "../../src/views/curves/places";
import { agentOf, identityOf, indexOf, isDrawn, itemsOf, kindCounts, residualsBySize, type Item } from "../../src/views/curves/samples";
import { itemText, spreadText } from "../../src/views/curves/words";

import type { CurvePoint, CurveSample, RejectedCurveSample } from "../../generated/moeplan/v1/profile_service";

const facts = { agent: "node-1", hostname: "a.example", backend: "host", takenAt: "2026-01-01T00:00:00Z" };
const origins = [
  { requestId: "request 0", calibration: "", receivedAt: "2025-01-01T00:00:00Z", provenance: { hostname: "elsewhere" } },
  { requestId: "request 1", calibration: "calibration 1", receivedAt: "2026-01-01T00:00:09Z", provenance: facts },
  { requestId: "request 2", calibration: "", receivedAt: "2026-01-02T00:00:00Z", provenance: facts },
];

const curveSample = (bytes: number, timeS: number, changes: Partial<CurveSample> = {}): CurveSample => ({
  size: bytes,
  repeatsS: [timeS],
  timeS,
  predictedS: 1e-3,
  ratePerS: bytes / timeS,
  outlier: false,
  retired: false,
  origin: 1,
  outlierRepeats: [],
  ...changes,
});

const rejected = (size: number, repeatsS: number[]): RejectedCurveSample => ({ size, repeatsS, reason: "faster than its links", origin: 2 });

const point = (size: number, timeS: number, changes: Partial<CurvePoint> = {}): CurvePoint => ({
  size, timeS, lowS: timeS * 0.9, highS: timeS * 1.1, ratePerS: size / timeS, lineS: undefined, ...changes,
});

describe("samples of a curve", () => {
  it("stand by rising size, then time, whatever order they came in", () => {
    const items = itemsOf({
      origins,
      samples: [curveSample(4096, 3e-3), curveSample(1024, 2e-3), curveSample(1024, 1e-3)],
      rejectedSamples: [rejected(2048, [5e-3])],
    });
    expect(items.map(({ size, timeS }) => [size, timeS])).toEqual([[1024, 1e-3], [1024, 2e-3], [2048, 5e-3], [4096, 3e-3]]);
  });

  it("say why they do not count; retired before outlier, as a retired one is in no fit", () => {
    const items = itemsOf({
      origins,
      samples: [curveSample(1, 1e-3), curveSample(2, 1e-3, { outlier: true }), curveSample(3, 1e-3, { outlier: true, retired: true })],
      rejectedSamples: [rejected(4, [1e-3])],
    });
    expect(items.map(({ kind }) => kind)).toEqual(["counted", "outlier", "retired", "set aside"]);
    expect(items[0]!.reason).toBe("");
    expect(items[2]!.reason).toBe("later samples of this cost stand in its place");
    expect(items[3]!.reason).toBe("faster than its links");
    expect([items[3]!.requestId, agentOf(items[3]!)]).toEqual(["request 2", "node-1"]);
    expect(kindCounts(items)).toEqual({ counted: 1, outlier: 1, retired: 1, "set aside": 1 });
  });

  it("are outliers by how far the repeats are off that the fit rejects", () => {
    const [item] = itemsOf({ origins, samples: [curveSample(2, 8e-3, { repeatsS: [1e-3, 8e-3, 9e-3], outlier: true, outlierRepeats: [1, 2] })], rejectedSamples: [] });
    expect(item!.reason).toBe("2 of its 3 repeats lie outside of what the fit believes of this size; its median is 8× the fit");
    expect(spreadText(item!)).toBe("1 ms to 9 ms, 3 repeats, 2 of them rejected");
  });

  it("have a residual of measured over predicted less one", () => {
    // 1.25 ms measured, 1 ms predicted.
    const [item] = itemsOf({ origins, samples: [curveSample(1024, 1.25e-3)], rejectedSamples: [] });
    expect(agentOf(item!)).toBe("node-1");
    expect(agentOf({ ...item!, provenance: { fleet: "west" } })).toBe("those of west");
    expect(agentOf({ ...item!, provenance: {} })).toBe("–");
    expect(item!.residual).toBeCloseTo(0.25, 12);
  });

  it("that were set aside may lack size and times", () => {
    const broken = { ...rejected(0, []), size: null, repeatsS: [null, -1, 2, 4] } as unknown as RejectedCurveSample;
    const [item] = itemsOf({ origins, samples: [], rejectedSamples: [broken] });
    expect(item!.size).toBeNaN();
    // The median of 2 and 4: what is not above 0 cannot be drawn, and is told.
    expect(item!.timeS).toBe(3);
    expect(item!.repeats).toEqual([-1, 2, 4]);
    expect(isDrawn(item!)).toBe(false);
  });

  it("of ten thousand stand in order", () => {
    const samples = Array.from({ length: 10_000 }, (_, index) => curveSample(2 ** (index % 20), 1e-3 + index * 1e-9));
    const items = itemsOf({ origins, samples, rejectedSamples: [] });
    expect(items).toHaveLength(10_000);
    expect(items.every((item, index) => index === 0 || items[index - 1]!.size <= item.size)).toBe(true);
  });

  it("have an identity that newer samples, another fit and being retired leave as it is", () => {
    const own = curveSample(2048, 2e-3);
    const before = itemsOf({ origins, samples: [own], rejectedSamples: [] });
    const identity = identityOf(before, 0);
    expect(identity).toMatch(/^[0-9a-z]{1,7}$/);
    const retired = curveSample(2048, 2e-3, { predictedS: 9e-3, retired: true });
    const after = itemsOf({ origins, samples: [curveSample(1024, 1e-3), curveSample(2048, 1.9e-3), retired], rejectedSamples: [rejected(8, [2e-3])] });
    expect(indexOf(after, identity)).toBe(3);
    expect(after[3]!.kind).toBe("retired");
    expect(indexOf(after, "0")).toBe(-1);
  });

  it("that are equal have an identity each", () => {
    const items = itemsOf({ origins, samples: [curveSample(8, 1e-3), curveSample(8, 1e-3), curveSample(8, 1e-3), curveSample(16, 1e-3)], rejectedSamples: [] });
    const identities = items.map((_, index) => identityOf(items, index));
    expect(new Set(identities).size).toBe(4);
    expect(identities.map((identity) => indexOf(items, identity))).toEqual([0, 1, 2, 3]);
  });

  it("without a size or a time can be found again, too", () => {
    const broken = { ...rejected(0, []), size: null, repeatsS: [null] } as unknown as RejectedCurveSample;
    const items = itemsOf({ origins, samples: [], rejectedSamples: [broken, { ...broken }] });
    expect([0, 1].map((index) => indexOf(items, identityOf(items, index)))).toEqual([0, 1]);
  });

  it("are summed up by size, those that count alone", () => {
    const items = itemsOf({
      origins,
      samples: [curveSample(8, 0.9e-3), curveSample(8, 1.2e-3), curveSample(8, 1.1e-3), curveSample(8, 9e-3, { outlier: true })],
      rejectedSamples: [],
    });
    const [row] = residualsBySize(items);
    expect(row!.samples).toBe(3);
    expect(row!.lowest).toBeCloseTo(-0.1, 12);
    expect(row!.median).toBeCloseTo(0.1, 12);
    expect(row!.highest).toBeCloseTo(0.2, 12);
  });
});

describe("marks", () => {
  const counted = curveSample(1024, 1e-3, { repeatsS: [1e-3, 9e-3, 1.1e-3], outlierRepeats: [1] });
  const outlier = curveSample(2048, 8e-3, { repeatsS: [8e-3, 7e-3, 2e-3], outlier: true, outlierRepeats: [0, 1] });
  const retired = curveSample(4096, 3e-3, { repeatsS: [3e-3, 2e-3], outlier: true, outlierRepeats: [0], retired: true });
  const items = itemsOf({ origins, samples: [counted, outlier, retired], rejectedSamples: [rejected(8192, [4e-3, -1])] });
  const told = (marks: readonly Mark[]) => marks.map(({ kind, x, y }) => `${kind} ${x} ${y}`);

  it("are of each repeat, those that the fit rejects apart", () => {
    expect(told(timeMarks(items, true))).toEqual([
      "counted 1024 0.001", "outlier 1024 0.009", "counted 1024 0.0011", "outlier 2048 0.008", "outlier 2048 0.007", "counted 2048 0.002",
      "retired 4096 0.003", "retired 4096 0.002", "set aside 8192 0.004",
    ]);
  });

  it("are of many samples their medians, and what the fit rejects beside them", () => {
    expect(told(timeMarks(items, false))).toEqual(["counted 1024 0.001", "outlier 1024 0.009", "outlier 2048 0.008", "retired 4096 0.003", "set aside 8192 0.004"]);
  });

  it("that lie beyond the axes point at where they are", () => {
    const at = (x: number, y: number): Mark => ({ kind: "counted", x, y });
    const { marks, beyond } = placed([at(10, 10), at(10, 1000), at(10, 0.1), at(1000, 10), at(0.1, 10), at(0.1, 0.1)], [1, 100], [1, 100], "log");
    expect(marks.counted).toEqual([{ x: 10, y: 10 }]);
    expect(beyond.map(({ toward }) => toward)).toEqual(["up", "down", "right", "left", "down"]);
    expect(beyond.every(({ x, y }) => x >= 1 && x <= 100 && y >= 1 && y <= 100)).toBe(true);
  });

  it("of stored samples lie on the axis of time, each repeat of them", () => {
    const { timeS, size } = domainsOf({ points: [], items, times: timeMarks(items, true), second: [], peakPerS: 1, marked: [] });
    const { beyond } = placed(timeMarks(items, true).filter(({ kind }) => kind !== "set aside"), size, timeS, "log");
    expect(beyond).toEqual([]);
  });
});

describe("words", () => {
  it("tell one sample with its units and where it comes from", () => {
    const [item] = itemsOf({ origins, samples: [curveSample(1024, 1.25e-3)], rejectedSamples: [] });
    expect(itemText(item!, "bytes")).toBe("1 KiB, median 1.25 ms of 1, predicted 1 ms, residual +25 %; agent node-1, host a.example, host");
    expect(spreadText({ ...item!, repeats: [2e-3, 1e-3, 3e-3] })).toBe("1 ms to 3 ms, 3 repeats");
  });
});

describe("comparison", () => {
  it("reads between two points as the chart draws it", () => {
    // Halfway between 1 and 100 in logarithms is 10; halfway between 1 s and 4 s is 2 s.
    expect(readCurve([point(1, 1), point(100, 4)], 10)!.timeS).toBeCloseTo(2, 12);
    expect(readCurve([point(1, 1), point(100, 4)], 101)).toBeNull();
    expect(readCurve([point(1, 1), point(100, 4)], 0.5)).toBeNull();
    expect(readCurve([point(1, 1), point(100, 4)], 1)!.timeS).toBe(1);
  });

  it("is made where both curves reach, and says whether their intervals meet", () => {
    const first = [point(1, 1), point(10, 2), point(100, 3)];
    const second = [point(10, 2.1), point(100, 6), point(1000, 7)];
    expect(compareCurves(first, second, 10)).toEqual([
      { size: 10, firstS: 2, secondS: 2.1, ratio: 1.05, overlap: true },
      { size: 100, firstS: 3, secondS: 6, ratio: 2, overlap: false },
    ]);
  });

  it("says nothing of intervals that are not known", () => {
    const byHand = { lowS: 2, highS: 2 };
    expect(compareCurves([point(10, 2, byHand)], [point(10, 2.1)], 10)[0]!.overlap).toBeNull();
    expect(compareCurves([point(10, 2)], [point(10, 2, byHand)], 10)[0]!.overlap).toBeNull();
  });

  it("keeps both ends when it is thinned", () => {
    const points = Array.from({ length: 101 }, (_, index) => point(2 ** (index / 5), 1));
    const rows = compareCurves(points, points, 5);
    expect(rows.map(({ size }) => size)).toEqual([0, 25, 50, 75, 100].map((index) => 2 ** (index / 5)));
  });
});

describe("costs", () => {
  const costs = ["ALL_TO_ALL groupSize 8 ranksPerNode 4", "GATE", "ALL_TO_ALL groupSize 16 ranksPerNode 4 algorithm PIPE"];

  it("are grouped by operation in the profile's order", () => {
    expect(costGroups(costs, "")).toEqual([
      { operation: "ALL_TO_ALL", costs: [
        { cost: costs[0], shape: "groupSize 8 ranksPerNode 4" },
        { cost: costs[2], shape: "groupSize 16 ranksPerNode 4 algorithm PIPE" },
      ] },
      { operation: "GATE", costs: [{ cost: "GATE", shape: "GATE" }] },
    ]);
  });

  it("are found by words in any order and case", () => {
    expect(costGroups(costs, "16 all_to").flatMap((group) => group.costs.map(({ cost }) => cost))).toEqual([costs[2]]);
    expect(costGroups(costs, "nothing")).toEqual([]);
  });

  it("leave it to the planner to refuse what is no number", () => {
    expect([undefined, "", "3", "x"].map(numberOf)).toEqual([undefined, undefined, 3, "x"]);
  });
});

describe("axes", () => {
  const shown = (items: Item[]) => domainsOf({ points: [point(1024, 1e-3), point(2048, 2e-3)], items, times: timeMarks(items, true), second: [], peakPerS: 2e6, marked: [4096] });

  it("are not stretched by what was set aside", () => {
    const [apart] = itemsOf({ origins, samples: [], rejectedSamples: [rejected(1e12, [1e6])] });
    expect(shown([apart!])).toEqual(shown([]));
  });

  it("hold the fit with its interval and the sizes to measure next", () => {
    const { size, timeS, residual } = shown([]);
    expect(size[0]).toBeLessThan(1024);
    expect(size[1]).toBeGreaterThan(4096);
    expect(timeS[0]).toBeLessThan(0.9e-3);
    expect(timeS[1]).toBeGreaterThan(2.2e-3);
    // The interval is 10 % wide on each side, and a tenth more is left.
    expect(residual[1]).toBeCloseTo(0.11, 6);
  });

  it("keep what lies beyond them just inside", () => {
    expect(kept(5, [0, 10], "linear")).toBe(5);
    expect(kept(11, [0, 10], "linear")).toBeCloseTo(9.7, 12);
    expect(kept(-1, [0, 10], "linear")).toBeCloseTo(0.3, 12);
    expect(kept(1000, [1, 100], "log")).toBeCloseTo(100 / 100 ** 0.03, 9);
    expect(kept(Number.NaN, [1, 100], "log")).toBeNaN();
  });
});

describe("ticks", () => {
  const of = (domain: [number, number], kind: "log" | "log2", wanted: number): number[] => ticksOf(scaleLog(domain, [0, 100]).base(kind === "log" ? 10 : 2), kind, wanted);

  it("are powers of the base, thinned evenly", () => {
    expect(of([0.9, 110], "log", 4)).toEqual([1, 10, 100]);
    expect(of([2 ** 10, 2 ** 20], "log2", 4)).toEqual([2 ** 12, 2 ** 15, 2 ** 18]);
    // Every second power alone would leave one of 10, 100 and 1000.
    expect(of([9, 1100], "log", 2)).toEqual([10, 1000]);
  });

  it("are round numbers in between where a decade or an octave holds fewer than two powers", () => {
    expect(of([1.5e-3, 2.4e-2], "log", 4)).toEqual([2e-3, 5e-3, 1e-2, 2e-2]);
    // Only 2 of 1, 2 and 5: steps of a tenth of the decade.
    expect(of([1.8, 2.4], "log", 4)).toEqual([1.8, 2, 2.2, 2.4]);
    // 7, 8 and 9 eighths of 2^20.
    expect(of([0.87 * 2 ** 20, 1.15 * 2 ** 20], "log2", 4)).toEqual([7 * 2 ** 17, 2 ** 20, 9 * 2 ** 17]);
  });

  it("are two at least, wherever an axis begins and however short it is", () => {
    for (const kind of ["log", "log2"] as const) {
      for (let low = 1e-6; low < 1e9; low *= 1.37) {
        for (const factor of [1.32, 1.5, 1.9, 2.1, 3, 9.9, 11, 150]) {
          for (const wanted of [2, 3.4, 15]) {
            const found = of([low, low * factor], kind, wanted);
            expect(found.length, `${kind} ${low} ${factor} ${wanted}: ${found.join(" ")}`).toBeGreaterThan(1);
            expect(found.length).toBeLessThanOrEqual(2 * Math.max(4, wanted));
            expect(found.every((tick) => tick >= low * (1 - 1e-8) && tick <= low * factor * (1 + 1e-8))).toBe(true);
          }
        }
      }
    }
  });
});

describe("the nearest point", () => {
  const scales = { x: scaleLinear([0, 10], [0, 100]), y: scaleLinear([0, 10], [100, 0]) };
  const points = [{ x: 1, y: 1 }, { x: 9, y: 9 }, { x: Number.NaN, y: 5 }];

  it("is nearest in pixels, and within reach", () => {
    expect(nearestPoint(points, { x: 8, y: 8 }, scales, 30)).toBe(1);
    expect(nearestPoint(points, { x: 2, y: 1 }, scales, 30)).toBe(0);
    expect(nearestPoint(points, { x: 5, y: 5 }, scales, 30)).toBeNull();
  });
});
