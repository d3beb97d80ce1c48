// A plan with what the planner says of its tasks.
import { useMemo } from "preact/hooks";

import type { Plan } from "../../../generated/moeplan/v1/plan";
import type { ExplainPlanResponse } from "../../../generated/moeplan/v1/planner_service";
import { call, CallError } from "../../api/client";
import { useLoaded, type Loaded } from "../../api/use_call";
import type { WorkloadJson } from "../../workload";
import { byTask, type Explained } from "./explained";
import { plainBaselines } from "./plan_facts";

export interface ExplainedPlan {
  /** As the planner times it; until it does, as it was given. */
  plan: Plan;
  /** null: not known, or not yet. */
  tasks: Explained | null;
  /** Of what was priced 0, extrapolated or foretold. */
  warnings: readonly string[];
  error: CallError | null;
  loading: boolean;
}

/** A version of a stored profile. */
export interface Pinned {
  profileName: string;
  profileVersion: number;
}

const requestOf = (pinned: Pinned, workload: WorkloadJson, plan: Partial<Plan>): string =>
  // What the timeline says is what is asked for.
  JSON.stringify({ ...pinned, workload, plan: { ...plan, timeline: [] } });

/** `pinned` null: there is no stored profile to ask with. */
export function useExplained(pinned: Pinned | null, workload: WorkloadJson, plan: Plan | undefined): ExplainedPlan | undefined {
  const key = useMemo(
    () => (pinned === null || plan === undefined ? null : requestOf(pinned, workload, plan)),
    [pinned?.profileName, pinned?.profileVersion, workload, plan],
  );
  const { data, error, loading } = useLoaded(key, async (signal) => ({
    key,
    answer: await call<ExplainPlanResponse>("PlannerService/ExplainPlan", JSON.parse(key!), signal),
  }));
  return useMemo(() => {
    if (plan === undefined) return undefined;
    // The answer before stays until the next one is there: of another plan it is none of this one's.
    const answer = data?.key === key ? data?.answer : undefined;
    return { plan: answer?.plan ?? plan, tasks: answer === undefined ? null : byTask(answer.tasks), warnings: answer?.warnings ?? [], error: loading ? null : error, loading };
  }, [plan, data, key, error, loading]);
}

/** The workload rules the plan out, or the profile lacks one of its costs. */
const notThere: readonly string[] = ["FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND"];

/** The plain baselines that are legal for the workload and that the profile prices, the fastest first. */
export function useBaselines(pinned: Pinned | null, workload: WorkloadJson): Loaded<Plan[]> {
  const keys = useMemo(
    () => (pinned === null ? null : plainBaselines.map((plan) => requestOf(pinned, workload, plan))),
    [pinned?.profileName, pinned?.profileVersion, workload],
  );
  return useLoaded(keys === null ? null : JSON.stringify(keys), async (signal) => {
    const priced = await Promise.all(keys!.map(async (key): Promise<Plan | undefined> => {
      try {
        return (await call<ExplainPlanResponse>("PlannerService/ExplainPlan", JSON.parse(key), signal)).plan;
      } catch (problem) {
        if (problem instanceof CallError && notThere.includes(problem.code)) return undefined;
        throw problem;
      }
    }));
    return priced.filter((plan) => plan !== undefined).sort((a, b) => a.predictedTimeS - b.predictedTimeS);
  });
}
