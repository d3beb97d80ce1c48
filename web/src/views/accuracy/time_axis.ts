// Times as a linear axis with round ticks: in the unit that suits the span, from the start of the first day. Pure.

export interface TimeAxis {
  label: string;
  domain: [number, number];
  /** Of a time in ms since 1970, in the axis' unit. */
  at: (ms: number) => number;
  format: (value: number) => string;
  /** Room for the longest of its labels; ticks come up to a third closer than asked for. */
  tickPx: number;
}

const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;

export function timeAxis(lowMs: number, highMs: number): TimeAxis {
  const start = Math.floor(lowMs / day) * day;
  const span = highMs - lowMs;
  const unit = span > 3 * day ? day : span > 3 * hour ? hour : span > 3 * minute ? minute : second;
  // A minute at least, so that ticks are whole seconds.
  const pad = Math.max(span * 0.03, (minute - span) / 2);
  const short = (ms: number): string => {
    const text = new Date(ms).toISOString();
    // Ticks lie between days and between minutes, too.
    if (unit === day && ms % day === 0) return text.slice(0, 10);
    return `${text.slice(5, 10)} ${text.slice(11, ms % minute === 0 ? 16 : 19)}`;
  };
  return {
    label: "stored at (UTC)",
    domain: [(lowMs - pad - start) / unit, (highMs + pad - start) / unit],
    at: (ms) => (ms - start) / unit,
    format: (value) => short(Math.round(start + value * unit)),
    tickPx: 130,
  };
}
