// Timelines by stream over one axis of time: what is on the critical path is outlined, communication that nothing hides
// is hatched, chunks differ in shade. The pointer or the arrow keys choose a task, whose times stand below.
import { scaleLinear } from "d3-scale";
import type { ComponentChildren } from "preact";
import { useId, useMemo, useRef, useState } from "preact/hooks";

import type { TaskTiming } from "../../generated/moeplan/v1/timeline";
import * as text from "../format";
import { streamClass } from "./colors";
import { useWidth } from "./frame";
import { KeyBox, useReadout } from "./readout";
import { endOf, lengthOf } from "./timeline_facts";
import {
  boxHeight, draw, factsOf, moved, placeAt, revealing, rowHeight, stack, walk, zoomed, type Drawn, type Place, type Section, type Stack, type Window,
} from "./timeline_layout";
import "./timeline.css";

interface Props {
  /** What the chart shows, in one sentence with its main numbers. */
  summary: string;
  sections: readonly Section[];
  /** More on a task, behind its times. */
  more?: (task: TaskTiming, section: number) => ComponentChildren;
}

const marginRight = 12;
const axisHeight = 36;
const arrows = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"];

const streamName = (stream: string, narrow: boolean): string => {
  const name = stream.toLowerCase().replace(/_/g, "-");
  return narrow ? name.replace("-node", "") : name;
};

function Boxes({ drawn, hatch }: { drawn: Drawn; hatch: string }) {
  return (
    <>
      {drawn.boxes.map((layer) => (
        <path key={layer.key} class={`timeline-box ${streamClass[layer.stream] ?? "stream-copy"}`} fill-opacity={layer.opacity} d={layer.path} />
      ))}
      {drawn.exposed !== "" && <path d={drawn.exposed} fill={`url(#${hatch})`} />}
      {drawn.handovers !== "" && <path class="timeline-handover" d={drawn.handovers} />}
      {drawn.critical !== "" && <path class="timeline-critical" d={drawn.critical} />}
      {drawn.labels.map((label) => (
        <text key={label.key} class="timeline-label" x={label.x} y={label.y} dy="0.35em" text-anchor="middle">{label.text}</text>
      ))}
    </>
  );
}

function Axis({ window, width, height }: { window: Window; width: number; height: number }) {
  const scale = scaleLinear([window.fromS, window.toS], [0, width]);
  const ticks = scale.ticks(Math.max(2, width / 110));
  return (
    <>
      {ticks.map((tick) => (
        <g key={tick} transform={`translate(${scale(tick)},0)`}>
          <line class="grid" y2={height} />
          <text class="tick" y={height + 14} text-anchor={scale(tick) > width - 16 ? "end" : "middle"}>{text.seconds(tick)}</text>
        </g>
      ))}
      <text class="axis-label" x={width / 2} y={height + 31} text-anchor="middle">time since the layer began</text>
    </>
  );
}

function rowOutline({ rows }: Stack, section: Section, at: Place, window: Window, width: number) {
  const row = rows[at.row]!;
  const task = section.tasks[row.tasks[at.place]!]!;
  const scale = scaleLinear([window.fromS, window.toS], [0, width]);
  const left = Math.max(-4, scale(task.startS));
  const right = Math.min(width + 4, Math.max(scale(task.endS), left + 2));
  return <rect class="timeline-cursor" x={left - 2} width={right - left + 4} y={row.top} height={rowHeight} />;
}

export function Timeline({ summary, sections, more }: Props) {
  const [ref, outer] = useWidth();
  const hatch = useId();
  const hint = useId();
  const endS = useMemo(() => Math.max(...sections.map(({ tasks }) => endOf(tasks)), 1e-12), [sections]);
  const [view, setView] = useState<{ endS: number; window: Window } | null>(null);
  const drag = useRef<{ x: number; window: Window } | null>(null);

  const narrow = outer < 640;
  const marginLeft = narrow ? 66 : 88;
  const width = Math.max(1, outer - marginLeft - marginRight);
  // Another plan has another end; a window of the old one would show something else.
  const window = view !== null && view.endS === endS ? view.window : { fromS: 0, toS: endS };
  const setWindow = (next: Window): void => setView({ endS, window: next });
  const facts = useMemo(() => sections.map(factsOf), [sections]);
  const rows = useMemo(() => stack(sections), [sections]);
  const drawn = useMemo(() => draw(sections, facts, rows, window, width), [sections, facts, rows, window.fromS, window.toS, width]);

  const { shown, pointed, cursor, setCursor, setPointed, walkTo } = useReadout<Place>(({ row, place }) => rows.rows[row]?.tasks[place] !== undefined);
  const shownRow = shown === null ? undefined : rows.rows[shown.row];
  const index = shown === null ? undefined : shownRow?.tasks[shown.place];
  const task = shownRow === undefined || index === undefined ? undefined : sections[shownRow.section]?.tasks[index];

  const middleS = (): number => (window.fromS + window.toS) / 2;
  const aroundS = (): number => {
    const at = cursor === null ? undefined : rows.rows[cursor.row];
    const chosen = at === undefined ? undefined : sections[at.section]!.tasks[at.tasks[cursor!.place]!];
    return chosen !== undefined && chosen.endS >= window.fromS && chosen.startS <= window.toS ? (chosen.startS + chosen.endS) / 2 : middleS();
  };
  const zoom = (factor: number): void => setWindow(zoomed(window, factor, Math.min(window.toS, Math.max(window.fromS, aroundS())), endS));
  const pan = (share: number): void => setWindow(moved(window, (window.toS - window.fromS) * share, endS));
  const first = (): Place | null => {
    const row = rows.rows.findIndex(({ tasks }) => tasks.length > 0);
    return row < 0 ? null : { row, place: 0 };
  };
  const moveTo = (next: Place): void => {
    walkTo(next);
    const row = rows.rows[next.row]!;
    const chosen = sections[row.section]!.tasks[row.tasks[next.place]!]!;
    setWindow(revealing(window, chosen.startS, chosen.endS, endS));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (arrows.includes(event.key)) {
      const next = cursor === null ? first() : walk(sections, rows, cursor, event.key);
      if (next !== null) moveTo(next);
    } else if (event.key === "+" || event.key === "=") zoom(0.5);
    else if (event.key === "-") zoom(2);
    else if (event.key === "0") setWindow({ fromS: 0, toS: endS });
    else if (event.key === "PageUp") pan(-0.5);
    else if (event.key === "PageDown") pan(0.5);
    else return;
    event.preventDefault();
  };
  const onPointerMove = (event: PointerEvent): void => {
    const area = (event.currentTarget as SVGElement).getBoundingClientRect();
    if (drag.current !== null && event.buttons === 1) {
      const start = drag.current;
      setWindow(moved(start.window, ((start.x - event.clientX) / width) * (start.window.toS - start.window.fromS), endS));
      return;
    }
    setPointed(placeAt(sections, rows, window, width, event.clientX - area.left, event.clientY - area.top));
  };

  return (
    <div ref={ref} class="chart timeline">
      <div class="timeline-tools" role="group" aria-label="Part of the time shown">
        <button type="button" class="quiet" aria-label="Nearer" onClick={() => zoom(0.5)}>+</button>
        <button type="button" class="quiet" aria-label="Further" onClick={() => zoom(2)}>−</button>
        <button type="button" class="quiet" aria-label="Earlier" onClick={() => pan(-0.5)}>◂</button>
        <button type="button" class="quiet" aria-label="Later" onClick={() => pan(0.5)}>▸</button>
        <button type="button" class="quiet" onClick={() => setWindow({ fromS: 0, toS: endS })}>All</button>
        <span class="muted">{text.seconds(window.fromS)} to {text.seconds(window.toS)}</span>
      </div>
      <KeyBox class="timeline-box-area" kind="timeline" summary={summary} told={hint} onKeyDown={onKeyDown} onFocus={() => setCursor(cursor ?? first())}>
        {outer > 0 && (
          <svg width={outer} height={rows.height + axisHeight} aria-hidden="true">
            <defs>
              <pattern id={hatch} width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">
                <line class="timeline-hatch" y2="5" />
              </pattern>
              <clipPath id={`${hatch}-clip`}><rect y={-1} width={width} height={rows.height + 2} /></clipPath>
            </defs>
            {rows.rows.map((row) => (
              <text key={`${row.section} ${row.stream}`} class="tick" x={marginLeft - 6} y={row.top + rowHeight / 2} dy="0.35em" text-anchor="end">
                {streamName(row.stream, narrow)}
              </text>
            ))}
            <g transform={`translate(${marginLeft},0)`}>
              <Axis window={window} width={width} height={rows.height} />
              {rows.headings.map(({ section, baseline }) => (
                <text key={section} class="timeline-title" x={-marginLeft} y={baseline}>{sections[section]!.title}</text>
              ))}
              {rows.rows.map((row) => <rect key={`${row.section} ${row.stream}`} class="timeline-lane" width={width} y={row.top + 2} height={boxHeight} />)}
              <g clip-path={`url(#${hatch}-clip)`}>
                <Boxes drawn={drawn} hatch={hatch} />
                {shown !== null && shownRow !== undefined && rowOutline(rows, sections[shownRow.section]!, shown, window, width)}
              </g>
              <rect
                class="timeline-catch"
                width={width}
                height={rows.height}
                onPointerDown={(event) => { drag.current = { x: event.clientX, window }; }}
                onPointerUp={() => { drag.current = null; }}
                onPointerMove={onPointerMove}
                onPointerLeave={() => { drag.current = null; setPointed(null); }}
                onClick={() => setCursor(pointed ?? cursor)}
              />
            </g>
          </svg>
        )}
      </KeyBox>
      <p class="timeline-says" id={hint} aria-live="polite">
        {task === undefined || shownRow === undefined || index === undefined ? (
          <span class="muted">Point at a task, or walk with the arrow keys; + and − zoom, Page Up and Page Down move, 0 shows all.</span>
        ) : (
          <>
            <strong>{task.task}</strong> ({sections[shownRow.section]!.title}): {text.plainName(task.kind)}, chunk {task.chunk}, {streamName(task.stream, false)};{" "}
            {text.seconds(task.startS)} to {text.seconds(task.endS)}, {text.seconds(task.endS - task.startS)} long
            {facts[shownRow.section]!.isCritical.has(index) ? "; on the critical path" : ""}
            {exposedWords(lengthOf(facts[shownRow.section]!.exposed[index]!))}.{" "}
            {more?.(task, shownRow.section)}
          </>
        )}
      </p>
    </div>
  );
}

const exposedWords = (exposedS: number): string => (exposedS > 0 ? `; ${text.seconds(exposedS)} of it exposed` : "");

/** What the looks mean. */
export function TimelineLegend() {
  return (
    <ul class="legend">
      {Object.entries(streamClass).map(([stream, name]) => (
        <li key={stream}><span class={`swatch ${name}`} aria-hidden="true" />{streamName(stream, false)}</li>
      ))}
      <li><span class="timeline-key timeline-key-critical" aria-hidden="true" />critical path</li>
      <li><span class="timeline-key timeline-key-exposed" aria-hidden="true" />exposed communication: nothing computes beside it</li>
      <li>shade: chunk</li>
    </ul>
  );
}
