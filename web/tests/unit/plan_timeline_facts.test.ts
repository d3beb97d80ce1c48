import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

import type { TaskTiming } from "../../generated/moeplan/v1/plan";
import { byStream, communicates, criticalPath, endOf, exposedCommunication, nearest, united } from "../../src/charts/timeline_facts";

type Row = [task: string, kind: string, stream: string, chunk: number, startS: number, endS: number];
const timing = ([task, kind, stream, chunk, startS, endS]: Row): TaskTiming => ({ task, kind, stream, chunk, startS, endS }) as TaskTiming;

/** Answers of `moeplan plan --profile deploy/examples/profile-8x8.json`, a candidate of each family. */
const answers = (JSON.parse(readFileSync(new URL("plan_answers.json", import.meta.url), "utf8")) as {
  workload: string;
  schedule: string;
  predictedTimeS: number;
  exposedCommunicationS: number;
  timeline: Row[];
}[]).map((answer) => ({ ...answer, timeline: answer.timeline.map(timing) }));

const tasks = (...rows: Row[]): TaskTiming[] => rows.map(timing);

/** The same question asked a thousand times: at each instant, does something communicate and nothing compute? */
function exposedBySampling(timeline: readonly TaskTiming[], steps: number): number {
  const end = endOf(timeline);
  let exposed = 0;
  for (let step = 0; step < steps; ++step) {
    const now = ((step + 0.5) / steps) * end;
    const running = timeline.filter((task) => task.startS <= now && now < task.endS);
    if (running.some(communicates) && !running.some((task) => task.stream === "COMPUTE" && !communicates(task))) exposed += end / steps;
  }
  return exposed;
}

describe("exposed communication", () => {
  it("is what runs beside no computation, counted once", () => {
    // Computes over 0-2 and 3-4; two collectives over 1-5 and 4-6: exposed over 2-3 and 4-6 = 3 s.
    const timeline = tasks(
      ["gate", "GATE", "COMPUTE", 0, 0, 2],
      ["a2a", "ALL_TO_ALL", "INTER_NODE", 0, 1, 5],
      ["expert", "EXPERT", "COMPUTE", 0, 3, 4],
      ["gather", "ALL_GATHER", "INTRA_NODE", 0, 4, 6],
      ["copy", "COPY", "COPY", 0, 2, 3],
    );
    const { parts, totalS } = exposedCommunication(timeline);
    expect(totalS).toBeCloseTo(3, 12);
    expect(parts[1]).toEqual([{ startS: 2, endS: 3 }, { startS: 4, endS: 5 }]);
    expect(parts[3]).toEqual([{ startS: 4, endS: 6 }]);
    expect(parts[4]).toEqual([]);
  });

  it("counts a collective on the compute stream as communication", () => {
    const timeline = tasks(["reduce", "ALL_REDUCE", "COMPUTE", 0, 0, 2], ["expert", "EXPERT", "COMPUTE", 0, 2, 3]);
    expect(exposedCommunication(timeline).totalS).toBeCloseTo(2, 12);
  });

  it.each(answers.map((answer) => [`${answer.workload} ${answer.schedule}`, answer] as const))("adds up to the planner's: %s", (_, answer) => {
    const { totalS } = exposedCommunication(answer.timeline);
    expect(Math.abs(totalS - answer.exposedCommunicationS)).toBeLessThan(1e-6 * answer.predictedTimeS);
    expect(Math.abs(totalS - exposedBySampling(answer.timeline, 5000))).toBeLessThan(2e-2 * answer.predictedTimeS);
  });

  it("joins spans that touch", () => {
    expect(united([{ startS: 2, endS: 3 }, { startS: 0, endS: 1 }, { startS: 1, endS: 2 }, { startS: 5, endS: 5 }])).toEqual([{ startS: 0, endS: 3 }]);
  });
});

describe("critical path", () => {
  it("walks back from the last end, over whatever ended when each task starts", () => {
    const timeline = tasks(
      ["gate", "GATE", "COMPUTE", 0, 0, 1],
      ["short", "EXPERT", "COMPUTE", 0, 1, 1.5],
      ["a2a", "ALL_TO_ALL", "INTER_NODE", 0, 1, 3],
      ["expert", "EXPERT", "COMPUTE", 0, 3, 6],
      ["beside", "ALL_GATHER", "INTRA_NODE", 0, 3, 4],
    );
    expect(criticalPath(timeline)).toEqual({ tasks: [0, 2, 3], gaps: [], lengthS: 6 });
  });

  it("stays on its stream where two end at once, and takes the longer of others", () => {
    const timeline = tasks(
      ["expert.0", "EXPERT", "COMPUTE", 0, 1, 2],
      ["a2a", "ALL_TO_ALL", "INTER_NODE", 0, 0, 2],
      ["expert.1", "EXPERT", "COMPUTE", 1, 2, 3],
    );
    expect(criticalPath(timeline).tasks).toEqual([0, 2]);
    const other = tasks(
      ["gather", "ALL_GATHER", "INTRA_NODE", 0, 1, 2],
      ["a2a", "ALL_TO_ALL", "INTER_NODE", 0, 0, 2],
      ["expert", "EXPERT", "COMPUTE", 1, 2, 3],
    );
    expect(criticalPath(other).tasks).toEqual([1, 2]);
  });

  it("says where nothing explains the waiting", () => {
    const timeline = tasks(["a", "GATE", "COMPUTE", 0, 0.5, 1], ["b", "EXPERT", "COMPUTE", 0, 1.25, 2]);
    expect(criticalPath(timeline)).toEqual({
      tasks: [0, 1],
      gaps: [{ startS: 0, endS: 0.5 }, { startS: 1, endS: 1.25 }],
      lengthS: 1.25,
    });
  });

  it("takes ends to be equal to a billionth of the whole, and passes tasks that take no time", () => {
    const timeline = tasks(
      ["a", "GATE", "COMPUTE", 0, 0, 1],
      ["empty", "PERMUTE", "COMPUTE", 0, 1, 1],
      ["b", "EXPERT", "COMPUTE", 0, 1 + 1e-12, 2],
    );
    const { tasks: path, gaps } = criticalPath(timeline);
    expect(gaps).toEqual([]);
    expect(path[0]).toBe(0);
    expect(path[path.length - 1]).toBe(2);
  });

  it.each(answers.map((answer) => [`${answer.workload} ${answer.schedule}`, answer] as const))("explains all of a planned time: %s", (_, answer) => {
    const { tasks: path, gaps, lengthS } = criticalPath(answer.timeline);
    expect(gaps).toEqual([]);
    expect(Math.abs(lengthS - endOf(answer.timeline))).toBeLessThan(1e-6 * answer.predictedTimeS);
    expect(new Set(path).size).toBe(path.length);
    expect(answer.timeline[path[0]!]!.startS).toBeLessThan(1e-9 * answer.predictedTimeS);
  });

  it("is quick over thousands of tasks, and there is one of none", () => {
    const many = tasks(...Array.from({ length: 20_000 }, (_, i): Row => [`t${i}`, "EXPERT", i % 2 === 0 ? "COMPUTE" : "COPY", i, i, i + 1]));
    const before = performance.now();
    expect(criticalPath(many).tasks.length).toBe(20_000);
    expect(performance.now() - before).toBeLessThan(500);
    const none = tasks(...Array.from({ length: 500 }, (_, i): Row => [`z${i}`, "EXPERT", "COMPUTE", i, 1, 1]));
    expect(criticalPath(none).lengthS).toBe(0);
    expect(criticalPath([])).toEqual({ tasks: [], gaps: [], lengthS: 0 });
  });
});

describe("rows", () => {
  it("hold tasks by start, and find the one at a time or next to it", () => {
    const timeline = tasks(["c", "EXPERT", "COMPUTE", 0, 5, 6], ["a", "EXPERT", "COMPUTE", 0, 0, 1], ["b", "EXPERT", "COMPUTE", 0, 2, 4]);
    const row = byStream(timeline).get("COMPUTE")!;
    expect(row).toEqual([1, 2, 0]);
    expect(nearest(timeline, row, 3)).toBe(1);
    expect(nearest(timeline, row, 1.2)).toBe(0);
    expect(nearest(timeline, row, 1.9)).toBe(1);
    expect(nearest(timeline, row, 100)).toBe(2);
    expect(nearest(timeline, row, -1)).toBe(0);
    expect(nearest(timeline, [], 0)).toBe(-1);
  });
});
