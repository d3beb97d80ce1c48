import { describe, expect, it } from "vitest";

import type { TaskTiming } from "../../generated/moeplan/v1/timeline";
import { draw, factsOf, moved, placeAt, revealing, rowHeight, stack, walk, zoomed, type Section } from "../../src/charts/timeline_layout";

const timing = (task: string, stream: string, startS: number, endS: number, chunk = 0): TaskTiming =>
  ({ task, kind: stream === "COMPUTE" ? "EXPERT" : "ALL_TO_ALL", stream, chunk, startS, endS }) as TaskTiming;

const plain: Section = { title: "plan", tasks: [timing("a", "COMPUTE", 0, 1), timing("b", "INTER_NODE", 1, 3), timing("c", "COMPUTE", 3, 4, 1)], critical: [0, 1, 2] };
const other: Section = { title: "rank", tasks: [timing("a", "COMPUTE", 0, 2), timing("x", "COPY", 2, 4)], critical: [] };
const whole = { fromS: 0, toS: 4 };

describe("layout of timelines", () => {
  it("gives every section the streams that any uses", () => {
    const rows = stack([plain, other]);
    expect(rows.rows.map(({ section, stream }) => `${section} ${stream}`)).toEqual([
      "0 COMPUTE", "0 INTER_NODE", "0 COPY", "1 COMPUTE", "1 INTER_NODE", "1 COPY",
    ]);
    expect(rows.rows[1]!.top - rows.rows[0]!.top).toBe(rowHeight);
  });

  it("draws boxes of one look as one path, the exposed part and the critical path over them", () => {
    const drawn = draw([plain], [factsOf(plain)], stack([plain]), whole, 400);
    // Compute in two shades (chunks 0 and 1), the all-to-all in one.
    expect(drawn.boxes.map(({ stream }) => stream)).toEqual(["COMPUTE", "COMPUTE", "INTER_NODE"]);
    expect(drawn.boxes[0]!.path).toContain("M0.0,");
    expect(drawn.boxes[0]!.path).toContain("h100.0");
    expect(drawn.exposed).toContain("M100.0,");
    expect(drawn.critical.match(/M/g)).toHaveLength(3);
    expect(drawn.handovers.match(/M/g)).toHaveLength(2);
    expect(drawn.labels.map(({ text }) => text)).toEqual(["a", "c", "b"]);
  });

  it("costs what its pixels cost, not what its tasks cost", () => {
    const tasks = Array.from({ length: 20_000 }, (_, i) => timing(`t${i}`, i % 3 === 0 ? "COPY" : "COMPUTE", i, i + 0.5));
    const many: Section = { title: "many", tasks, critical: tasks.map((_, index) => index) };
    const drawn = draw([many], [factsOf(many)], stack([many]), { fromS: 0, toS: 20_000 }, 800);
    const boxes = drawn.boxes.reduce((sum, { path }) => sum + path.split("M").length - 1, 0);
    expect(boxes).toBeLessThan(2 * 800 + 10);
    expect(drawn.critical.split("M").length).toBeLessThan(2 * 800 + 10);
    expect(drawn.handovers.split("M").length).toBeLessThan(2 * 800 + 10);
    expect(drawn.labels).toEqual([]);
  });

  it("outlines no path where none is known", () => {
    const drawn = draw([other], [factsOf(other)], stack([other]), whole, 400);
    expect([drawn.critical, drawn.handovers]).toEqual(["", ""]);
    expect(drawn.boxes).toHaveLength(2);
  });

  it("draws only what the window shows", () => {
    const drawn = draw([plain], [factsOf(plain)], stack([plain]), { fromS: 3.5, toS: 4 }, 400);
    expect(drawn.boxes).toHaveLength(1);
    expect(drawn.labels.map(({ text }) => text)).toEqual(["c"]);
  });
});

describe("a place on the timeline", () => {
  const rows = stack([plain, other]);
  const sections = [plain, other];

  it("is found under the pointer, or a few pixels beside it", () => {
    const compute = rows.rows[0]!.top + 3;
    expect(placeAt(sections, rows, whole, 400, 50, compute)).toEqual({ row: 0, place: 0 });
    expect(placeAt(sections, rows, whole, 400, 103, compute)).toEqual({ row: 0, place: 0 });
    expect(placeAt(sections, rows, whole, 400, 200, compute)).toBeNull();
    expect(placeAt(sections, rows, whole, 400, 50, -5)).toBeNull();
  });

  it("moves along a stream, and to the task that runs then on the next stream that has any", () => {
    expect(walk(sections, rows, { row: 0, place: 0 }, "ArrowRight")).toEqual({ row: 0, place: 1 });
    expect(walk(sections, rows, { row: 0, place: 1 }, "ArrowRight")).toEqual({ row: 0, place: 1 });
    expect(walk(sections, rows, { row: 0, place: 1 }, "Home")).toEqual({ row: 0, place: 0 });
    expect(walk(sections, rows, { row: 0, place: 0 }, "End")).toEqual({ row: 0, place: 1 });
    expect(walk(sections, rows, { row: 0, place: 1 }, "ArrowDown")).toEqual({ row: 1, place: 0 });
    // The plan has nothing on COPY, and goes on in the rank's timeline.
    expect(walk(sections, rows, { row: 1, place: 0 }, "ArrowDown")).toEqual({ row: 3, place: 0 });
    expect(walk(sections, rows, { row: 0, place: 0 }, "ArrowUp")).toEqual({ row: 0, place: 0 });
    expect(walk(sections, rows, { row: 0, place: 0 }, "x")).toBeNull();
  });
});

describe("the part of the time that is shown", () => {
  it("zooms around a time and never leaves the timeline", () => {
    expect(zoomed(whole, 0.5, 2, 4)).toEqual({ fromS: 1, toS: 3 });
    expect(zoomed({ fromS: 3, toS: 4 }, 2, 3.75, 4)).toEqual({ fromS: 2, toS: 4 });
    expect(zoomed(whole, 2, 2, 4)).toEqual(whole);
    expect(moved({ fromS: 1, toS: 2 }, 10, 4)).toEqual({ fromS: 3, toS: 4 });
    expect(moved({ fromS: 1, toS: 2 }, -10, 4)).toEqual({ fromS: 0, toS: 1 });
  });

  it("follows the cursor", () => {
    expect(revealing({ fromS: 0, toS: 1 }, 0.2, 0.4, 4)).toEqual({ fromS: 0, toS: 1 });
    const later = revealing({ fromS: 0, toS: 1 }, 2, 2.5, 4);
    expect(later.fromS).toBeLessThanOrEqual(2);
    expect(later.toS).toBeGreaterThanOrEqual(2.5);
    const longer = revealing({ fromS: 0, toS: 1 }, 2, 4, 4);
    expect(longer.fromS).toBeLessThanOrEqual(2);
    expect(longer.toS).toBeGreaterThan(2);
  });
});
