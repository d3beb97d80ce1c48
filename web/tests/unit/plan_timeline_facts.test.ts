import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

import type { TaskTiming } from "../../generated/moeplan/v1/timeline";
import { byStream, communicates, endOf, exposedCommunication, lengthOf, nearest, united } from "../../src/charts/timeline_facts";

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

const exposedS = (timeline: readonly TaskTiming[]): number => lengthOf(united(exposedCommunication(timeline).flat()));

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
    const parts = exposedCommunication(timeline);
    expect(exposedS(timeline)).toBeCloseTo(3, 12);
    expect(parts[1]).toEqual([{ startS: 2, endS: 3 }, { startS: 4, endS: 5 }]);
    expect(parts[3]).toEqual([{ startS: 4, endS: 6 }]);
    expect(parts[4]).toEqual([]);
  });

  it("counts a collective on the compute stream as communication", () => {
    const timeline = tasks(["reduce", "ALL_REDUCE", "COMPUTE", 0, 0, 2], ["expert", "EXPERT", "COMPUTE", 0, 2, 3]);
    expect(exposedS(timeline)).toBeCloseTo(2, 12);
  });

  it.each(answers.map((answer) => [`${answer.workload} ${answer.schedule}`, answer] as const))("adds up to the planner's: %s", (_, answer) => {
    const totalS = exposedS(answer.timeline);
    expect(Math.abs(totalS - answer.exposedCommunicationS)).toBeLessThan(1e-6 * answer.predictedTimeS);
    expect(Math.abs(totalS - exposedBySampling(answer.timeline, 5000))).toBeLessThan(2e-2 * answer.predictedTimeS);
  });

  it("joins spans that touch", () => {
    expect(united([{ startS: 2, endS: 3 }, { startS: 0, endS: 1 }, { startS: 1, endS: 2 }, { startS: 5, endS: 5 }])).toEqual([{ startS: 0, endS: 3 }]);
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
