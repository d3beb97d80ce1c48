// A plan with what the planner says of its tasks.
import { useMemo } from "preact/hooks";

import type { Plan } from "../../../generated/moeplan/v1/plan";
import type { ExplainPlanRequest, ExplainPlanResponse } from "../../../generated/moeplan/v1/planner_service";
import { call, type CallError } from "../../api/client";
import { useLoaded } from "../../api/use_call";
import type { WorkloadJson } from "../../workload";
import { byTask, type Explained } from "./explained";

export interface ExplainedPlan {
  /** As the planner times it; until it does, as it was given. */
  plan: Plan;
  /** null: not known, or not yet. */
  tasks: Explained | null;
  error: CallError | null;
  loading: boolean;
}

/** A version of a stored profile. */
export interface Pinned {
  profileName: string;
  profileVersion: number;
}

/** `pinned` null: there is no stored profile to ask with. */
export function useExplained(pinned: Pinned | null, workload: WorkloadJson, plan: Plan | undefined): ExplainedPlan | undefined {
  const key = useMemo(() => {
    if (pinned === null || plan === undefined) return null;
    // What the timeline says is what is asked for.
    return JSON.stringify({ ...pinned, workload: workload as unknown as ExplainPlanRequest["workload"], plan: { ...plan, timeline: [] } } satisfies ExplainPlanRequest);
  }, [pinned?.profileName, pinned?.profileVersion, workload, plan]);
  const { data, error, loading } = useLoaded(key, async (signal) => ({
    key,
    answer: await call<ExplainPlanResponse>("PlannerService/ExplainPlan", JSON.parse(key!), signal),
  }));
  return useMemo(() => {
    if (plan === undefined) return undefined;
    // The answer before stays until the next one is there: of another plan it is none of this one's.
    const answer = data?.key === key ? data?.answer : undefined;
    return { plan: answer?.plan ?? plan, tasks: answer === undefined ? null : byTask(answer.tasks), error: loading ? null : error, loading };
  }, [plan, data, key, error, loading]);
}
