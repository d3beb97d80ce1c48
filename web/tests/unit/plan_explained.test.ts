import { describe, expect, it } from "vitest";

import type { TaskTiming } from "../../generated/moeplan/v1/timeline";
import type { ExplainedTask } from "../../generated/moeplan/v1/planner_service";
import { byTask, contentionOf, criticalPath, dearestCosts, pathOnRankWords, pathWords, taskWords } from "../../src/views/plan/explained";

const timing = (task: string, stream: string, startS: number, endS: number): TaskTiming =>
  ({ task, kind: stream === "COMPUTE" ? "EXPERT" : "ALL_TO_ALL", stream, chunk: 0, startS, endS }) as TaskTiming;
const told = (task: string, aloneS: number, releasedBy: string, critical: boolean): ExplainedTask =>
  ({ task, cost: "", foretold: false, size: 0, aloneS, releasedBy, critical });

// As the planner launches them: "sync" takes no time, and "a2a" ends as "beside" does.
const timeline = [
  timing("gate", "COMPUTE", 0, 1), timing("a2a", "INTER_NODE", 1, 3.5), timing("beside", "COMPUTE", 1, 3.5),
  timing("expert", "COMPUTE", 3.5, 6), timing("sync", "COMPUTE", 3.5, 3.5),
];
const explained = byTask([told("gate", 1, "", true), told("a2a", 2, "gate", true), told("beside", 2.5, "gate", false), told("expert", 2.5, "sync", true), told("sync", 0, "a2a", true)]);

describe("what the planner says of tasks", () => {
  it("is the critical path in the order of time, whatever else ends at the same times", () => {
    expect(criticalPath(timeline, explained).map((index) => timeline[index]!.task)).toEqual(["gate", "a2a", "sync", "expert"]);
    expect(criticalPath(timeline, null)).toEqual([]);
  });

  it("adds up: 1 + 2.5 + 0 + 2.5 = 6 s, of which the all-to-all waits 0.5 s for its neighbour", () => {
    expect(pathWords(timeline, explained)).toBe("4 tasks, 6 s, 500 ms of it contention");
    expect(pathWords([timing("gate", "COMPUTE", 0, 1)], byTask([told("gate", 1, "", true)]))).toBe("1 task, 1 s");
  });

  it("sums what a plan spends on each cost that has a curve, the dearest first", () => {
    const of = (task: string, cost: string): ExplainedTask => ({ ...told(task, 1, "", false), cost });
    const spent = dearestCosts(timeline, byTask([of("gate", "GATE"), of("a2a", "ALL_TO_ALL"), of("expert", "GATE"), of("beside", "")]));
    expect(spent).toEqual([{ cost: "GATE", tasks: 2, timeS: 3.5 }, { cost: "ALL_TO_ALL", tasks: 1, timeS: 2.5 }]);
    expect(dearestCosts(timeline, null)).toEqual([]);
  });

  it("tells contention from rounding", () => {
    expect(contentionOf(timing("a", "COMPUTE", 0, 1 + 1e-9), told("a", 1, "", true))).toBe(0);
    expect(contentionOf(timing("a", "COMPUTE", 0, 1), told("a", 1.5, "", true))).toBe(0);
    expect(contentionOf(timing("a", "COMPUTE", 0, 2), told("a", 1.5, "", true))).toBe(0.5);
    expect(contentionOf(timing("a", "COMPUTE", 1, 1), told("a", 0, "", true))).toBe(0);
  });

  it("stands in words", () => {
    expect(taskWords(timeline[1]!, explained.get("a2a")!)).toBe("2 s alone, 500 ms more by contention; released by gate");
    expect(taskWords(timeline[0]!, explained.get("gate")!)).toBe("1 s alone, and nothing contends with it; starts the plan");
  });

  it("is looked up by name on a rank, which records less", () => {
    const rank = [timing("gate", "COMPUTE", 0, 2), timing("a2a", "INTER_NODE", 2, 5), timing("beside", "COMPUTE", 2, 5), timing("expert", "COMPUTE", 5, 8)];
    expect(pathOnRankWords(rank, explained)).toMatch(/^8 s \(3 of 4 are recorded\); ranks do not record/);
    expect(pathOnRankWords([...rank, timing("sync", "COMPUTE", 5, 5)], explained)).toMatch(/^8 s; /);
  });
});
