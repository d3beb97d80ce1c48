import { describe, expect, it } from "vitest";

import { cellBox, heatLayers, moveCursor, shadeOpacity, thinned, type HeatCell } from "../../src/charts/heat_grid";

const geometry = { columns: 2, rows: 2, cellWidth: 10, cellHeight: 10 };

describe("heat map", () => {
  it("puts the first row at the bottom", () => {
    expect(cellBox(geometry, 0, 0)).toEqual({ left: 0, top: 10, width: 9, height: 9 });
    expect(cellBox(geometry, 1, 1)).toEqual({ left: 10, top: 0, width: 9, height: 9 });
  });

  it("draws cells of one look in one path, and hatches and crosses over them", () => {
    const cells: Record<string, HeatCell> = {
      "0 0": { class: "family-2", label: "S1", says: "" },
      "1 0": { class: "family-2", label: "S1", says: "", hatched: true },
      "0 1": { class: "family-3", label: "S2", says: "" },
      "1 1": { label: "", says: "", missing: true },
    };
    const layers = heatLayers(geometry, (x, y) => cells[`${x} ${y}`] ?? null);
    expect(layers.fills.map(({ class: name }) => name)).toEqual(["family-2", "family-3"]);
    expect(layers.fills[0]!.path).toBe("M0.0,10.0h9.0v9.0h-9.0zM10.0,10.0h9.0v9.0h-9.0z");
    expect(layers.hatched).toBe("M10.0,10.0h9.0v9.0h-9.0z");
    expect(layers.missing.startsWith("M10.0,0.0")).toBe(true);
  });

  it("gathers shades that look alike", () => {
    const layers = heatLayers({ ...geometry, columns: 1000, rows: 4 }, (x) => ({ shade: x / 1000, label: "", says: "" }));
    expect(layers.fills.length).toBe(25);
    expect(shadeOpacity(1)).toBeGreaterThan(shadeOpacity(0.5));
    expect(shadeOpacity(7)).toBe(shadeOpacity(1));
  });

  it("thins labels to what has room", () => {
    expect(thinned(5, 20, 14)).toEqual([0, 1, 2, 3, 4]);
    expect(thinned(5, 10, 25)).toEqual([0, 3]);
  });

  it("moves the cursor and stays inside", () => {
    expect(moveCursor({ x: 0, y: 0 }, "ArrowUp", 3, 2)).toEqual({ x: 0, y: 1 });
    expect(moveCursor({ x: 0, y: 1 }, "ArrowUp", 3, 2)).toEqual({ x: 0, y: 1 });
    expect(moveCursor({ x: 1, y: 1 }, "End", 3, 2)).toEqual({ x: 2, y: 1 });
    expect(moveCursor({ x: 1, y: 1 }, "a", 3, 2)).toBeNull();
  });
});
