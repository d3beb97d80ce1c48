// From timelines to what is drawn: rows, boxes gathered into one path for each look, labels where they fit. Pure.
import type { TaskTiming } from "../../generated/moeplan/v1/timeline";
import { byStream, exposedCommunication, nearest, streams, type Span } from "./timeline_facts";

/** One timeline among those that share an axis. */
export interface Section {
  title: string;
  tasks: readonly TaskTiming[];
  /** Its critical path as places of `tasks`, first to last; empty: none is known. */
  critical: readonly number[];
}

export interface Row {
  section: number;
  stream: string;
  /** Into the section's tasks, by start. */
  tasks: number[];
  /** In px from the top. */
  top: number;
}

export interface Heading {
  section: number;
  /** Of its line of text, in px from the top. */
  baseline: number;
}

export interface Stack {
  headings: Heading[];
  rows: Row[];
  height: number;
}

/** The part of the time that is shown. */
export interface Window {
  fromS: number;
  toS: number;
}

export const rowHeight = 24;
export const boxHeight = 20;
const headingHeight = 24;

/** Sections below each other, each with the streams that any of them uses. */
export function stack(sections: readonly Section[]): Stack {
  const grouped = sections.map(({ tasks }) => byStream(tasks));
  const used: string[] = streams.filter((stream) => grouped.some((rows) => (rows.get(stream)?.length ?? 0) > 0));
  for (const rows of grouped) {
    for (const [stream, tasks] of rows) if (tasks.length > 0 && !used.includes(stream)) used.push(stream);
  }
  const headings: Heading[] = [];
  const rows: Row[] = [];
  let top = 0;
  sections.forEach((_, section) => {
    headings.push({ section, baseline: top + 16 });
    top += headingHeight;
    for (const stream of used) {
      rows.push({ section, stream, tasks: grouped[section]!.get(stream) ?? [], top });
      top += rowHeight;
    }
    top += 6;
  });
  return { headings, rows, height: top };
}

export interface SectionFacts {
  isCritical: ReadonlySet<number>;
  exposed: Span[][];
}

export const factsOf = ({ tasks, critical }: Section): SectionFacts => ({ isCritical: new Set(critical), exposed: exposedCommunication(tasks) });

/** Boxes of one look. */
export interface BoxLayer {
  key: string;
  stream: string;
  opacity: number;
  path: string;
}

export interface BoxLabel {
  key: string;
  x: number;
  y: number;
  text: string;
}

export interface Drawn {
  boxes: BoxLayer[];
  exposed: string;
  critical: string;
  /** Where the path goes from one stream to another. */
  handovers: string;
  labels: BoxLabel[];
}

/** Shades by chunk: neighbours differ, and --ink stands on each with a contrast of 4.5 in both themes. */
const chunkOpacity = [0.45, 0.26, 0.36, 0.17] as const;
const labelWidth = 6.6;
const mostLabels = 400;

const px = (value: number): string => value.toFixed(1);

/** A name where it has room; half a name would tell little. */
export function fittingLabel(name: string, width: number): string {
  const most = Math.floor((width - 4) / labelWidth);
  return name.length <= most ? name : "";
}

/**
 * Draws what the window shows, `width` px wide. Boxes thinner than a pixel fill the one they begin in, and those that find
 * it filled are left out, so that thousands of tiny tasks cost what the pixels cost.
 */
export function draw(sections: readonly Section[], facts: readonly SectionFacts[], { rows }: Stack, window: Window, width: number): Drawn {
  const perS = width / (window.toS - window.fromS);
  const at = (timeS: number): number => (timeS - window.fromS) * perS;
  const layers = new Map<string, BoxLayer>();
  const drawn: Drawn = { boxes: [], exposed: "", critical: "", handovers: "", labels: [] };
  const topOf = new Map<string, number>(rows.map((row) => [`${row.section} ${row.stream}`, row.top]));

  for (const row of rows) {
    const { tasks } = sections[row.section]!;
    const { isCritical, exposed } = facts[row.section]!;
    const top = row.top + (rowHeight - boxHeight) / 2;
    let filledUntil = -Infinity;
    let criticalUntil = -Infinity;
    for (const index of row.tasks) {
      const task = tasks[index]!;
      if (task.endS < window.fromS || task.startS > window.toS) continue;
      const thin = (task.endS - task.startS) * perS < 1;
      const left = Math.max(-2, thin ? Math.floor(at(task.startS)) : at(task.startS));
      const right = Math.min(width + 2, thin ? left + 1 : at(task.endS));
      const critical = isCritical.has(index) && !(thin && left < criticalUntil);
      if (thin && left < filledUntil && !critical) continue;
      filledUntil = Math.max(filledUntil, right);
      const opacity = chunkOpacity[Math.abs(task.chunk) % chunkOpacity.length]!;
      const key = `${row.stream} ${opacity}`;
      const layer = layers.get(key) ?? { key, stream: row.stream, opacity, path: "" };
      layer.path += `M${px(left)},${top}h${px(right - left)}v${boxHeight}h${px(left - right)}z`;
      layers.set(key, layer);
      if (critical) {
        criticalUntil = right;
        const inset = right - left > 3 ? 1 : 0;
        drawn.critical += `M${px(left + inset)},${top + 1}h${px(right - left - 2 * inset)}v${boxHeight - 2}h${px(left - right + 2 * inset)}z`;
      }
      for (const part of exposed[index]!) {
        if (part.endS < window.fromS || part.startS > window.toS) continue;
        const from = Math.max(-2, at(part.startS));
        const to = Math.min(width + 2, at(part.endS));
        if (to - from >= 0.5) drawn.exposed += `M${px(from)},${top}h${px(to - from)}v${boxHeight}h${px(from - to)}z`;
      }
      const shownLeft = Math.max(0, left);
      const shownWidth = Math.min(width, right) - shownLeft;
      const text = fittingLabel(task.task, shownWidth);
      if (text !== "" && drawn.labels.length < mostLabels) {
        drawn.labels.push({ key: `${row.section} ${index}`, x: shownLeft + shownWidth / 2, y: top + boxHeight / 2, text });
      }
    }
  }
  sections.forEach(({ tasks, critical }, section) => {
    let last = -Infinity;
    critical.forEach((index, place) => {
      const before = tasks[critical[place - 1] ?? -1];
      const task = tasks[index]!;
      if (before === undefined || before.stream === task.stream) return;
      const x = at(task.startS);
      if (x < 0 || x > width || x - last < 0.5) return;
      const [from, to] = [topOf.get(`${section} ${before.stream}`), topOf.get(`${section} ${task.stream}`)];
      if (from === undefined || to === undefined) return;
      last = x;
      drawn.handovers += `M${px(x)},${from + rowHeight / 2}V${to + rowHeight / 2}`;
    });
  });
  drawn.boxes = [...layers.values()];
  return drawn;
}

/** A task by its row and its place in it. */
export interface Place {
  row: number;
  place: number;
}

/** What a point of the drawing lies on or near; null: nothing within `reach` px. */
export function placeAt(sections: readonly Section[], { rows }: Stack, window: Window, width: number, x: number, y: number, reach = 4): Place | null {
  const row = rows.findIndex(({ top }) => y >= top && y < top + rowHeight);
  const found = rows[row];
  if (found === undefined) return null;
  const perPx = (window.toS - window.fromS) / width;
  const timeS = window.fromS + x * perPx;
  const { tasks } = sections[found.section]!;
  const place = nearest(tasks, found.tasks, timeS);
  const task = tasks[found.tasks[place] ?? -1];
  if (task === undefined || timeS < task.startS - reach * perPx || timeS > task.endS + reach * perPx) return null;
  return { row, place };
}

/** Where a key moves the cursor; null: the key is not of the cursor, or there is nowhere to go. */
export function walk(sections: readonly Section[], { rows }: Stack, at: Place, key: string): Place | null {
  const row = rows[at.row];
  if (row === undefined) return null;
  const { tasks } = sections[row.section]!;
  const task = tasks[row.tasks[at.place] ?? -1];
  const last = row.tasks.length - 1;
  switch (key) {
    case "ArrowLeft": return { row: at.row, place: Math.max(0, at.place - 1) };
    case "ArrowRight": return { row: at.row, place: Math.min(last, at.place + 1) };
    case "Home": return { row: at.row, place: 0 };
    case "End": return { row: at.row, place: last };
    case "ArrowUp":
    case "ArrowDown": {
      const step = key === "ArrowUp" ? -1 : 1;
      for (let next = at.row + step; next >= 0 && next < rows.length; next += step) {
        const other = rows[next]!;
        const middleS = task === undefined ? 0 : (task.startS + task.endS) / 2;
        const place = nearest(sections[other.section]!.tasks, other.tasks, middleS);
        if (place >= 0) return { row: next, place };
      }
      return at;
    }
    default: return null;
  }
}

/** Nearer or further by a factor (below 1: nearer) around a time, inside of 0 to `endS`. */
export function zoomed(window: Window, factor: number, aroundS: number, endS: number): Window {
  const length = Math.min(endS, Math.max(endS * 1e-5, (window.toS - window.fromS) * factor));
  const share = (aroundS - window.fromS) / (window.toS - window.fromS);
  return moved({ fromS: aroundS - share * length, toS: aroundS + (1 - share) * length }, 0, endS);
}

/** Earlier or later by seconds, inside of 0 to `endS`. */
export function moved(window: Window, byS: number, endS: number): Window {
  const length = Math.min(endS, window.toS - window.fromS);
  const fromS = Math.min(endS - length, Math.max(0, window.fromS + byS));
  return { fromS, toS: fromS + length };
}

/** Moved as little as shows the span. */
export function revealing(window: Window, startS: number, finishS: number, endS: number): Window {
  const length = window.toS - window.fromS;
  if (startS >= window.fromS && finishS <= window.toS) return window;
  if (finishS - startS >= length || startS < window.fromS) return moved(window, startS - window.fromS - length * 0.05, endS);
  return moved(window, finishS - window.toS + length * 0.05, endS);
}
