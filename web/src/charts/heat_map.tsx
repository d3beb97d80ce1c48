// A heat map over two lists of values: a family's colour and a label in each cell, or a shade of a sequential scale.
//
//   <HeatMap
//     summary="Fastest schedule by sequence length and batch: ..."   name of the chart, one sentence
//     xLabel="layer.sequenceLength" xValues={["1024", "2048"]}       left to right
//     yLabel="layer.batch" yValues={["1", "2"]}                      from below
//     cell={(x, y) => ({ class: familyClass("PARM_S1"), label: "S1", hatched: true, says: "..." })}
//     picked={{ x: 0, y: 1 }}                                        outlined; optional
//     onPick={(x, y) => ...}                                         click, Enter or Space on a cell; optional
//   />
//
// `cell` answers null where nothing is known yet, `missing: true` where there is no answer, `shade` (0 to 1) instead of
// `class` for a sequential scale; see HeatCell. What the cell under the pointer or the cursor `says` stands below the map.
// Arrow keys, Home, End, Page Up and Page Down move the cursor. Thousands of cells cost one path for each look; labels
// are drawn where there is room. `cell` is asked again for all cells when it is another function: keep it with useCallback.
// The table alternative is the view's own: it knows what its columns are.
import type { JSX } from "preact";
import { useId, useMemo } from "preact/hooks";

import { useWidth } from "./frame";
import { cellBox, heatLayers, moveCursor, thinned, type HeatCell, type HeatGeometry } from "./heat_grid";
import { KeyBox, useReadout } from "./readout";
import "./heat_map.css";

export type { HeatCell } from "./heat_grid";

export interface HeatPoint {
  x: number;
  y: number;
}

interface Props {
  summary: string;
  xLabel: string;
  yLabel: string;
  xValues: readonly string[];
  yValues: readonly string[];
  cell: (x: number, y: number) => HeatCell | null;
  picked?: HeatPoint | null;
  onPick?: (x: number, y: number) => void;
}

const characterWidth = 7;
const bottom = 40;
const mostLabels = 1200;

const longest = (texts: readonly string[]): number => texts.reduce((most, text) => Math.max(most, text.length), 0);

function geometryOf(width: number, xValues: readonly string[], yValues: readonly string[]): HeatGeometry & { left: number } {
  const left = Math.min(120, 30 + longest(yValues) * characterWidth);
  const rows = Math.max(1, yValues.length);
  const columns = Math.max(1, xValues.length);
  return {
    left,
    columns,
    rows,
    cellWidth: Math.max(1, Math.min(120, (width - left - 8) / columns)),
    cellHeight: Math.max(6, Math.min(34, 420 / rows)),
  };
}

function Labels({ geometry, cell }: { geometry: HeatGeometry; cell: Props["cell"] }) {
  const { columns, rows, cellWidth, cellHeight } = geometry;
  if (columns * rows > mostLabels || cellHeight < 14) return null;
  const labels: JSX.Element[] = [];
  for (let y = 0; y < rows; ++y) {
    for (let x = 0; x < columns; ++x) {
      const found = cell(x, y);
      if (found === null || found.label === "" || found.label.length * characterWidth + 4 > cellWidth) continue;
      const { left, top, width, height } = cellBox(geometry, x, y);
      labels.push(
        <text key={`${x} ${y}`} class={found.missing ? "heat-none" : "heat-label"} x={left + width / 2} y={top + height / 2} dy="0.35em" text-anchor="middle">
          {found.label}
        </text>,
      );
    }
  }
  return <g>{labels}</g>;
}

export function HeatMap({ summary, xLabel, yLabel, xValues, yValues, cell, picked = null, onPick }: Props) {
  const [ref, width] = useWidth();
  const hatch = useId();
  const hint = useId();
  const geometry = geometryOf(width, xValues, yValues);
  const { columns, rows, cellWidth, cellHeight, left } = geometry;
  const layers = useMemo(() => heatLayers(geometry, cell), [cell, columns, rows, cellWidth, cellHeight]);
  const labels = useMemo(() => (width > 0 ? <Labels geometry={geometry} cell={cell} /> : null), [cell, columns, rows, cellWidth, cellHeight]);
  const { shown, cursor, setCursor, setPointed, walkTo } = useReadout<HeatPoint>(({ x, y }) => x < columns && y < rows);
  const told = shown === null ? null : cell(shown.x, shown.y);

  const pointAt = (event: PointerEvent | MouseEvent): HeatPoint | null => {
    const area = (event.currentTarget as SVGElement).getBoundingClientRect();
    const x = Math.floor((event.clientX - area.left) / cellWidth);
    const y = rows - 1 - Math.floor((event.clientY - area.top) / cellHeight);
    return x >= 0 && x < columns && y >= 0 && y < rows ? { x, y } : null;
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const at = cursor ?? picked ?? { x: 0, y: 0 };
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      // What is told, be it by the pointer, is what is opened.
      const { x, y } = shown ?? at;
      onPick?.(x, y);
      return;
    }
    const next = moveCursor(at, event.key, columns, rows);
    if (next === null) return;
    event.preventDefault();
    walkTo(next);
  };

  const outline = (at: HeatPoint, name: string) => {
    const { left: cellLeft, top, width: cellInner, height } = cellBox(geometry, at.x, at.y);
    return <rect class={name} x={cellLeft} y={top} width={cellInner} height={height} />;
  };
  const area = { width: columns * cellWidth, height: rows * cellHeight };

  return (
    <div ref={ref} class="chart heat">
      <KeyBox class="heat-box" kind="heat map" summary={summary} told={hint} onKeyDown={onKeyDown} onFocus={() => setCursor(cursor ?? picked ?? { x: 0, y: 0 })}>
        {width > 0 && (
          <svg width={width} height={area.height + bottom} aria-hidden="true">
            <defs>
              <pattern id={hatch} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
                <line class="heat-hatch" y2="6" />
              </pattern>
            </defs>
            <text class="axis-label" transform={`translate(12,${area.height / 2}) rotate(-90)`} text-anchor="middle">{yLabel}</text>
            {thinned(rows, cellHeight, 14).map((y) => (
              <text key={y} class="tick" x={left - 6} y={(rows - 0.5 - y) * cellHeight} dy="0.32em" text-anchor="end">{yValues[y]}</text>
            ))}
            <g transform={`translate(${left},0)`}>
              {layers.fills.map((layer) => (
                <path key={layer.key} class={layer.class === undefined ? "heat-shade" : `heat-fill ${layer.class}`} fill-opacity={layer.opacity} d={layer.path} />
              ))}
              {layers.edges.map((layer) => <path key={layer.key} class={`heat-fill ${layer.class ?? ""}`} d={layer.path} />)}
              {layers.missing !== "" && <path class="heat-missing" d={layers.missing} />}
              {layers.hatched !== "" && <path d={layers.hatched} fill={`url(#${hatch})`} />}
              {labels}
              {picked !== null && outline(picked, "heat-picked")}
              {shown !== null && outline(shown, "heat-cursor")}
              {thinned(columns, cellWidth, longest(xValues) * characterWidth + 6).map((x) => (
                <text key={x} class="tick" x={(x + 0.5) * cellWidth} y={area.height + 14} text-anchor="middle">{xValues[x]}</text>
              ))}
              <text class="axis-label" x={area.width / 2} y={area.height + 33} text-anchor="middle">{xLabel}</text>
              <rect
                class={onPick === undefined ? "heat-catch" : "heat-catch heat-pickable"}
                width={area.width}
                height={area.height}
                onPointerMove={(event) => setPointed(pointAt(event))}
                onPointerLeave={() => setPointed(null)}
                onClick={(event) => {
                  const at = pointAt(event);
                  if (at === null) return;
                  setCursor(at);
                  onPick?.(at.x, at.y);
                }}
              />
            </g>
          </svg>
        )}
      </KeyBox>
      <p class="heat-says" aria-live="polite">
        {shown === null || told === null
          ? <span class="muted" id={hint}>Point at a cell, or walk with the arrow keys{onPick === undefined ? "" : "; Enter opens it"}.</span>
          : <span id={hint}>{yLabel} {yValues[shown.y]}, {xLabel} {xValues[shown.x]}: {told.says}</span>}
      </p>
    </div>
  );
}
