// What a heat map draws, without a DOM: cells gathered into one path for each look, ticks thinned to what is legible.

/** One cell. */
export interface HeatCell {
  /** Class that sets --c, such as familyClass("PARM_S1"): what the cell is. */
  class?: string;
  /** How much there is of something, 0 to 1: a sequential scale. Not together with `class`. */
  shade?: number;
  /** A few characters that stand in the cell where there is room: colour is never the only sign. */
  label: string;
  /** Hatched: near a tie. */
  hatched?: boolean;
  /** Crossed out: there is no answer here. */
  missing?: boolean;
  /** All there is to say of the cell, in one sentence or two; told to pointers, keyboards and screen readers. */
  says: string;
}

/** Cells of one look, as the path of their rectangles. */
export interface HeatLayer {
  key: string;
  class: string | undefined;
  /** fill-opacity. */
  opacity: number;
  path: string;
}

/** What the cells measure in px. */
export interface HeatGeometry {
  columns: number;
  rows: number;
  cellWidth: number;
  cellHeight: number;
}

const shades = 24;
/** So much of a colour lets --ink stand on it with a contrast of 4.5 in both themes. */
export const familyOpacity = 0.4;
const mostShade = 0.48;

/** The opacity of a share of 0 to 1, in a limited number of steps. */
export function shadeOpacity(shade: number): number {
  const step = Math.round(Math.min(1, Math.max(0, shade)) * shades) / shades;
  return 0.03 + (mostShade - 0.03) * step;
}

const gap = (size: number): number => (size >= 8 ? 1 : 0);

/** The rectangle of a cell; the first row is the lowest. */
export function cellBox(geometry: HeatGeometry, x: number, y: number): { left: number; top: number; width: number; height: number } {
  const { rows, cellWidth, cellHeight } = geometry;
  return {
    left: x * cellWidth,
    top: (rows - 1 - y) * cellHeight,
    width: Math.max(0, cellWidth - gap(cellWidth)),
    height: Math.max(0, cellHeight - gap(cellHeight)),
  };
}

const boxPath = (left: number, top: number, width: number, height: number): string =>
  `M${left.toFixed(1)},${top.toFixed(1)}h${width.toFixed(1)}v${height.toFixed(1)}h${(-width).toFixed(1)}z`;

export interface HeatLayers {
  fills: HeatLayer[];
  /** The left edges of cells with a class, in its full colour. */
  edges: HeatLayer[];
  hatched: string;
  missing: string;
}

/** Gathers all cells. */
export function heatLayers(geometry: HeatGeometry, cell: (x: number, y: number) => HeatCell | null): HeatLayers {
  const fills = new Map<string, HeatLayer>();
  const edges = new Map<string, HeatLayer>();
  let hatched = "";
  let missing = "";
  const add = (layers: Map<string, HeatLayer>, name: string | undefined, opacity: number, path: string): void => {
    const key = `${name ?? ""}/${opacity.toFixed(3)}`;
    const layer = layers.get(key) ?? { key, class: name, opacity, path: "" };
    layer.path += path;
    layers.set(key, layer);
  };
  for (let y = 0; y < geometry.rows; ++y) {
    for (let x = 0; x < geometry.columns; ++x) {
      const found = cell(x, y);
      if (found === null) continue;
      const { left, top, width, height } = cellBox(geometry, x, y);
      const path = boxPath(left, top, width, height);
      if (found.missing) {
        missing += `${path}M${left.toFixed(1)},${top.toFixed(1)}l${width.toFixed(1)},${height.toFixed(1)}`;
        continue;
      }
      if (found.class !== undefined) {
        add(fills, found.class, familyOpacity, path);
        add(edges, found.class, 1, boxPath(left, top, Math.min(3, width), height));
      } else {
        add(fills, undefined, shadeOpacity(found.shade ?? 0), path);
      }
      if (found.hatched) hatched += path;
    }
  }
  return { fills: [...fills.values()], edges: [...edges.values()], hatched, missing };
}

/** Which of `count` labels to draw where each has `room` px and the longest needs `needed`: every n-th, from the first. */
export function thinned(count: number, room: number, needed: number): number[] {
  const step = Math.max(1, Math.ceil(needed / Math.max(1, room)));
  return Array.from({ length: Math.ceil(count / step) }, (_, index) => index * step);
}

/** Where a key moves the cursor; null: the key is not ours. */
export function moveCursor(
  at: { x: number; y: number },
  key: string,
  columns: number,
  rows: number,
): { x: number; y: number } | null {
  const clamp = (value: number, most: number): number => Math.min(most - 1, Math.max(0, value));
  switch (key) {
    case "ArrowLeft": return { ...at, x: clamp(at.x - 1, columns) };
    case "ArrowRight": return { ...at, x: clamp(at.x + 1, columns) };
    case "ArrowUp": return { ...at, y: clamp(at.y + 1, rows) };
    case "ArrowDown": return { ...at, y: clamp(at.y - 1, rows) };
    case "Home": return { ...at, x: 0 };
    case "End": return { ...at, x: columns - 1 };
    case "PageUp": return { ...at, y: rows - 1 };
    case "PageDown": return { ...at, y: 0 };
    default: return null;
  }
}
