// Times as a linear axis with round ticks: in the unit that suits the span, from the start of the first day. Pure.

export interface TimeAxis {
  label: string;
  domain: [number, number];
  /** Of a time in ms since 1970, in the axis' unit. */
  at: (ms: number) => number;
  format: (value: number) => string;
}

const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;

export function timeAxis(lowMs: number, highMs: number): TimeAxis {
  const start = Math.floor(lowMs / day) * day;
  const span = Math.max(highMs - lowMs, minute);
  const unit = span > 3 * day ? day : span > 3 * hour ? hour : minute;
  const pad = span * 0.03;
  const short = (ms: number): string => {
    const text = new Date(ms).toISOString();
    return unit === day ? text.slice(0, 10) : `${text.slice(5, 10)} ${text.slice(11, 16)}`;
  };
  return {
    label: "stored at (UTC)",
    domain: [(lowMs - pad - start) / unit, (highMs + pad - start) / unit],
    at: (ms) => (ms - start) / unit,
    format: (value) => short(start + value * unit),
  };
}
