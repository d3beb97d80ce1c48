// Sweeps in slices, so that it is known how far it is, and what is there can be seen; what is cancelled stops at the planner.
import { useEffect, useRef, useState } from "preact/hooks";

import type { SweepPoint, SweepRequest, SweepResponse } from "../../generated/moeplan/v1/planner_service";
import { call, CallError } from "../api/client";
import { retryMs } from "../api/use_call";
import { axisText, countOf, mostPoints, slices, type Axis } from "./axes";

const pointsOfCall = 32;

/** What is swept. */
export interface Grid {
  axes: readonly Axis[];
  /** Of the whole grid. */
  request: SweepRequest;
}

export interface Swept {
  question: Grid;
  /** Those that are there, in order. */
  points: readonly SweepPoint[];
  total: number;
  /** Empty, 0: no answer yet. */
  profileName: string;
  profileVersion: number;
  notes: readonly string[];
  state: "running" | "waiting" | "done" | "cancelled" | "failed";
  error: CallError | null;
}

export interface Sweeping {
  swept: Swept | null;
  again: () => void;
  cancel: () => void;
}

const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((done, failed) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      failed(new DOMException("cancelled", "AbortError"));
    });
  });

const isAway = (problem: unknown): boolean =>
  problem instanceof CallError && (problem.code === "UNREACHABLE" || problem.code === "UNAVAILABLE");

/** Asks once more, as often as the planner is away. */
async function patiently<Answer>(ask: () => Promise<Answer>, onAway: () => void, signal: AbortSignal): Promise<Answer> {
  for (;;) {
    try {
      return await ask();
    } catch (problem) {
      if (!isAway(problem)) throw problem;
      onAway();
      await pause(retryMs, signal);
    }
  }
}

async function sweep(question: Grid, tell: (changes: Partial<Swept>) => void, signal: AbortSignal): Promise<void> {
  const { axes, request } = question;
  // A grid that is too large is refused as a whole.
  const parts = countOf(axes) > mostPoints ? [axes] : slices(axes, pointsOfCall);
  let points: SweepPoint[] = [];
  const notes = new Set<string>();
  let pinned = {};
  for (const part of parts) {
    const answer = await patiently(
      () => call<SweepResponse>("PlannerService/Sweep", { ...request, ...pinned, axes: part.map(axisText) }, signal),
      () => tell({ state: "waiting" }),
      signal,
    );
    const { profileName, profileVersion } = answer;
    // All points are of one version, whatever is stored meanwhile.
    pinned = { profileName, profileVersion };
    points = [...points, ...answer.points];
    answer.notes.forEach((note) => notes.add(note));
    tell({ state: "running", points, notes: [...notes], profileName, profileVersion });
  }
  tell({ state: "done" });
}

/** Sweeps when `key`, which names the question, changes; null: nothing is asked. */
export function useSweep(key: string | null, question: Grid | null): Sweeping {
  const [swept, setSwept] = useState<Swept | null>(null);
  const [round, setRound] = useState(0);
  const controller = useRef<AbortController | null>(null);

  useEffect(() => {
    if (key === null || question === null) {
      setSwept(null);
      return undefined;
    }
    const mine = new AbortController();
    controller.current = mine;
    const tell = (changes: Partial<Swept>): void => setSwept((before) => (before === null || mine.signal.aborted ? before : { ...before, ...changes }));
    setSwept({ question, points: [], total: countOf(question.axes), profileName: "", profileVersion: 0, notes: [], state: "running", error: null });
    sweep(question, tell, mine.signal).catch((problem: unknown) => {
      if (mine.signal.aborted) return;
      tell({ state: "failed", error: problem instanceof CallError ? problem : new CallError(String(problem), "UNKNOWN") });
    });
    return () => mine.abort();
  }, [key, round]);

  const cancel = (): void => {
    controller.current?.abort();
    setSwept((before) => (before === null ? null : { ...before, state: "cancelled" }));
  };
  return { swept, again: () => setRound((value) => value + 1), cancel };
}
