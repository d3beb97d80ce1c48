// Numbers with their units, as people of this field write them. Pure.
import { format } from "d3-format";

const threeDigits = format(".3~r");

function scaled(value: number, steps: readonly (readonly [number, string])[], none: string): string {
  if (!Number.isFinite(value)) return none;
  if (value === 0) return `0 ${steps[steps.length - 1]![1]}`;
  const size = Math.abs(value);
  const step = steps.find(([least]) => size >= least * 0.9995) ?? steps[steps.length - 1]!;
  return `${threeDigits(value / step[0])} ${step[1]}`;
}

const noNumber = "–";

/** "12.3 µs". */
export const seconds = (value: number): string =>
  scaled(value, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]], noNumber);

/** Sizes of messages are powers of two: "64 MiB". */
export const bytes = (value: number): string =>
  scaled(value, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]], noNumber);

/** Rates are powers of ten: "46.1 GB/s". */
export const bytesPerS = (value: number): string =>
  scaled(value, [[1e12, "TB/s"], [1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]], noNumber);

export const flops = (value: number): string =>
  scaled(value, [[1e15, "Pflop"], [1e12, "Tflop"], [1e9, "Gflop"], [1e6, "Mflop"], [1e3, "kflop"], [1, "flop"]], noNumber);

export const flopsPerS = (value: number): string =>
  scaled(value, [[1e15, "Pflop/s"], [1e12, "Tflop/s"], [1e9, "Gflop/s"], [1e6, "Mflop/s"], [1e3, "kflop/s"], [1, "flop/s"]], noNumber);

const launches = (value: number): string => `${threeDigits(value)} launches`;

/** Of a cost's size or rate: "bytes", "flops" or "launches" is its unit. */
export const sizeOf = (unit: string, value: number): string =>
  unit === "flops" ? flops(value) : unit === "launches" ? launches(value) : bytes(value);
export const rateOf = (unit: string, value: number): string =>
  unit === "flops" ? flopsPerS(value) : unit === "launches" ? `${launches(value)}/s` : bytesPerS(value);

/** Sums of times differ in the last bit: what is less than a thousandth of a percent is none. */
const leastShare = 1e-5;

/** "byte" of "bytes", "launch" of "launches". */
export const oneOf = (unit: string): string => (unit === "launches" ? "launch" : unit.replace(/s$/, ""));
/** What a rate in that unit is called: collectives and kernels that count bytes have a bus bandwidth. */
export const rateName = (unit: string): string => (unit === "bytes" ? "Bus bandwidth" : "Rate");

/** A share as "12.3 %". */
export const percent = (share: number): string =>
  !Number.isFinite(share) ? noNumber : Math.abs(share) < leastShare ? "0 %" : `${threeDigits(share * 100)} %`;

/** The same with its sign, "+12.3 %": of what may lie on either side. */
export const signedPercent = (share: number): string => `${share >= leastShare && Number.isFinite(share) ? "+" : ""}${percent(share)}`;

/** A factor as "1.23×". */
export const factor = (value: number): string => (Number.isFinite(value) ? `${format(".3~r")(value)}×` : noNumber);

/** A count as "1,234". */
export const count = (value: number): string => (Number.isFinite(value) ? format(",.0f")(value) : noNumber);

const ages: readonly (readonly [number, string])[] = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];

/** "3 hours ago" of an RFC 3339 time. */
export function age(time: string, nowMs: number): string {
  const then = Date.parse(time);
  if (Number.isNaN(then)) return noNumber;
  const passed = (nowMs - then) / 1000;
  if (passed < 1) return "now";
  const [length, name] = ages.find(([least]) => passed >= least)!;
  const whole = Math.floor(passed / length);
  return `${whole} ${name}${whole === 1 ? "" : "s"} ago`;
}

/** "ALL_TO_ALL" as "all-to-all". */
export const plainName = (name: string): string =>
  name.toLowerCase().replace(/all_to_all/g, "all-to-all").replace(/all_gather/g, "all-gather").replace(/all_reduce/g, "all-reduce")
    .replace(/reduce_scatter/g, "reduce-scatter").replace(/_/g, " ");
