import { scaleLinear } from "d3-scale";
import { describe, expect, it } from "vitest";

import type { Plan } from "../../generated/moeplan/v1/plan";
import type { Run } from "../../generated/moeplan/v1/planner_service";
import { ticksOf } from "../../src/charts/frame";
import { nearest, shapePath } from "../../src/charts/shapes";
import { comparable, median, mediansOverTime, quantile, summariesBy, summarize } from "../../src/views/accuracy/statistics";
import { signedError } from "../../src/signed_error";
import { timeAxis } from "../../src/views/accuracy/time_axis";

function run(predictedTimeS: number, measuredTimeS: number, interval: [number, number] = [0, 0], schedule = "PARM_S1"): Run {
  const plan = { schedule, lowS: interval[0], highS: interval[1] } as Plan;
  return { run: 1, createdAt: "2026-01-01T00:00:00Z", profileName: "west", profileVersion: 1, workloadName: "", plan, predictedTimeS, measuredTimeS, requestId: "" };
}

describe("the error of a run", () => {
  it("is above 0 where too much was predicted", () => {
    expect(signedError(run(1.2, 1))).toBeCloseTo(0.2, 12);
    expect(signedError(run(1, 2))).toBeCloseTo(-0.5, 12);
  });

  it("needs both times", () => {
    expect(comparable([run(1, 1), run(0, 1), run(1, 0), run(Number.NaN, 1)])).toHaveLength(1);
  });
});

describe("statistics", () => {
  it("take the middle", () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 2, 3])).toBe(2.5);
    expect(median([])).toBeNaN();
  });

  it("take quantiles by nearest rank", () => {
    const hundred = Array.from({ length: 100 }, (_, index) => 100 - index);
    expect(quantile(hundred, 0.95)).toBe(95);
    expect(quantile([7], 0.95)).toBe(7);
    expect(quantile([1, 2], 0.5)).toBe(1);
  });

  it("sum up signed errors of 10, -20 and 30 %", () => {
    // |error|: 0.1, 0.2, 0.3. The second has no interval; the first lies inside its own, the third does not.
    const summary = summarize([run(1.1, 1, [0.9, 1.2]), run(0.8, 1), run(1.3, 1, [1.1, 1.5])]);
    expect(summary.count).toBe(3);
    expect(summary.absoluteP50).toBeCloseTo(0.2, 12);
    expect(summary.absoluteP95).toBeCloseTo(0.3, 12);
    expect(summary.bias).toBeCloseTo(0.1, 12);
    expect([summary.inside, summary.withInterval]).toEqual([1, 2]);
  });

  it("name the runs that they are of: of four the second, in the order of each figure", () => {
    // Errors of 10, -20, 30 and -40 %: by |error| 1, 2, 3, 4; signed 4, 2, 1, 3.
    const runs = [run(1.1, 1), run(0.8, 1), run(1.3, 1), run(0.6, 1)].map((one, index) => ({ ...one, run: index + 1 }));
    expect(summarize(runs).runOf).toEqual({ absoluteP50: 2, absoluteP95: 4, bias: 2 });
    expect(summarize([]).runOf).toEqual({ absoluteP50: null, absoluteP95: null, bias: null });
  });

  it("know no interval of a profile written by hand, whose ends are one", () => {
    const summary = summarize([run(1, 1, [1, 1]), run(1, 2, [1, 1])]);
    expect([summary.inside, summary.withInterval]).toEqual([0, 0]);
  });

  it("count the ends of an interval as inside", () => {
    expect(summarize([run(1, 1, [1, 2]), run(1, 2, [1, 2])]).inside).toBe(2);
  });

  it("group by what is asked, most runs first", () => {
    const groups = summariesBy([run(1, 1, [0, 0], "BASELINE"), run(1, 1), run(1, 1)], ({ plan }) => plan!.schedule);
    expect(groups.map(({ key, summary }) => [key, summary.count])).toEqual([["PARM_S1", 2], ["BASELINE", 1]]);
  });

  it("follow the median over time, whatever the order of the runs", () => {
    // Ten runs in two groups of five: errors 0...4 and 5...9 have the medians 2 and 7, at the third and eighth run's time.
    const errors = Array.from({ length: 10 }, (_, index) => ({ atMs: index * 1000, error: index })).reverse();
    expect(mediansOverTime(errors, 2)).toEqual([{ atMs: 2000, error: 2 }, { atMs: 7000, error: 7 }]);
    expect(mediansOverTime(errors.slice(0, 4), 2)).toEqual([]);
  });
});

describe("an axis of time", () => {
  it("counts days from the first day's start", () => {
    const axis = timeAxis(Date.parse("2026-01-01T12:00:00Z"), Date.parse("2026-01-11T12:00:00Z"));
    expect(axis.at(Date.parse("2026-01-03T00:00:00Z"))).toBe(2);
    expect(axis.format(2)).toBe("2026-01-03");
    expect(axis.domain[0]).toBeLessThan(0.5);
    expect(axis.domain[1]).toBeGreaterThan(10.5);
  });

  it("counts seconds where the span is short, and is a minute wide for one moment", () => {
    const at = Date.parse("2026-01-01T00:30:00Z");
    const axis = timeAxis(at, at);
    expect(axis.at(at)).toBe(1800);
    expect(axis.domain).toEqual([1770, 1830]);
    expect([1800, 1805].map(axis.format)).toEqual(["01-01 00:30", "01-01 00:30:05"]);
  });

  it("tells its ticks apart, whatever the span, in labels that have room", () => {
    const low = Date.parse("2026-01-01T11:59:50.123Z");
    for (const spanS of [0, 0.2, 20, 59, 61, 179, 181, 600, 3600, 10_000, 12_000, 86_400, 250_000, 270_000, 1e6, 1e7]) {
      const axis = timeAxis(low, low + spanS * 1000);
      for (const widthPx of [300, 600, 1200, 2400]) {
        const scale = scaleLinear(axis.domain, [0, widthPx]);
        const ticks = ticksOf(scale, "linear", Math.max(2, widthPx / axis.tickPx));
        const labels = ticks.map(axis.format);
        expect(new Set(labels).size).toBe(labels.length);
        // A character takes at most 6 px of a tick's 11.
        for (let i = 1; i < ticks.length; ++i) expect(scale(ticks[i]!) - scale(ticks[i - 1]!)).toBeGreaterThan(6 * (labels[i - 1]!.length + labels[i]!.length) / 2);
      }
    }
  });
});

describe("marks", () => {
  it("give families of one chart different shapes", () => {
    const families = ["BASELINE", "BASELINE_TP", "PARM_S1", "PARM_S2", "MONTA_O1", "MONTA_O2", "MONTA_O3", "PIPELINE", "ONCE_PER_NODE", "OTHER"];
    expect(new Set(families.map((family) => shapePath(family, [{ x: 0, y: 0 }]))).size).toBe(families.length);
  });

  it("are one path whatever their number", () => {
    expect(shapePath("PARM_S1", [{ x: 1, y: 2 }, { x: 3, y: 4 }]).match(/M/g)).toHaveLength(2);
  });

  it("are found where they are near enough", () => {
    const places = [{ x: 0, y: 0 }, { x: 10, y: 0 }, { x: Number.NaN, y: 0 }];
    expect(nearest(places, 8, 1, 5)).toBe(1);
    expect(nearest(places, 100, 0, 5)).toBe(-1);
  });
});
