import { describe, expect, it } from "vitest";

import * as text from "../../src/format";

describe("numbers with units", () => {
  it("choose the unit by size", () => {
    expect(text.seconds(0.0000123)).toBe("12.3 µs");
    expect(text.seconds(0.9999)).toBe("1 s");
    expect(text.seconds(0)).toBe("0 ns");
    expect(text.bytes(67108864)).toBe("64 MiB");
    expect(text.bytesPerS(46.1e9)).toBe("46.1 GB/s");
    expect(text.flopsPerS(312e12)).toBe("312 Tflop/s");
    expect(text.percent(0.1234)).toBe("12.3 %");
    expect([0.02, 0, -0.02].map(text.signedPercent)).toEqual(["+2 %", "0 %", "−2 %"]);
    expect([2e-5, 9e-6, -1.6e-15].map(text.percent)).toEqual(["0.002 %", "0 %", "0 %"]);
    expect([2e-5, 9e-6, -1.6e-15].map(text.signedPercent)).toEqual(["+0.002 %", "0 %", "0 %"]);
    expect(text.count(1234567)).toBe("1,234,567");
  });

  it("do not pretend where there is no number", () => {
    expect(text.seconds(Number.NaN)).toBe("–");
    expect(text.percent(Infinity)).toBe("–");
    expect(text.signedPercent(Infinity)).toBe("–");
    expect(text.age("not a time", 0)).toBe("–");
  });

  it("tell sizes and rates in the unit of the cost", () => {
    expect([text.sizeOf("launches", 96), text.rateOf("launches", 25000)]).toEqual(["96 launches", "25000 launches/s"]);
    expect([text.sizeOf("flops", 2e9), text.sizeOf("bytes", 2048)]).toEqual(["2 Gflop", "2 KiB"]);
    expect(["bytes", "flops", "launches"].map(text.oneOf)).toEqual(["byte", "flop", "launch"]);
    expect(["bytes", "flops", "launches"].map(text.rateName)).toEqual(["Bus bandwidth", "Rate", "Rate"]);
  });

  it("tell ages in whole units", () => {
    const now = Date.parse("2026-01-02T00:00:00Z");
    expect(text.age("2026-01-01T00:00:00Z", now)).toBe("1 day ago");
    expect(text.age("2026-01-01T23:58:30Z", now)).toBe("1 minute ago");
    expect(text.age("2026-01-02T00:00:05Z", now)).toBe("now");
  });
});
