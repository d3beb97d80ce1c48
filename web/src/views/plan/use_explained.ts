// A plan with what the planner says of its tasks.
import { useMemo } from "preact/hooks";

import type { Plan } from "../../../generated/moeplan/v1/plan";
import type { ExplainPlanResponse } from "../../../generated/moeplan/v1/planner_service";
import { call, CallError } from "../../api/client";
import { useLoaded } from "../../api/use_call";
import type { WorkloadJson } from "../../workload";
import { byTask, type Explained } from "./explained";

export interface ExplainedPlan {
  /** As the planner times it; until it does, as it was given. */
  plan: Plan;
  /** null: not known, or not yet. */
  tasks: Explained | null;
  /** Of what was priced 0, extrapolated or predicted. */
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
  const { data, isOld, error, loading } = useLoaded(key, (signal) => call<ExplainPlanResponse>("PlannerService/ExplainPlan", JSON.parse(key!), signal));
  return useMemo(() => {
    if (plan === undefined) return undefined;
    const answer = isOld ? null : data;
    return { plan: answer?.plan ?? plan, tasks: answer === null ? null : byTask(answer.tasks), warnings: answer?.warnings ?? [], error: loading ? null : error, loading };
  }, [plan, data, isOld, error, loading]);
}

/** The faster baseline that is legal for the workload, as the planner finds and times it. */
export function useBaseline(pinned: Pinned | null, workload: WorkloadJson): { baseline: ExplainedPlan | undefined; error: CallError | null } {
  const key = useMemo(() => (pinned === null ? null : JSON.stringify({ ...pinned, workload })), [pinned?.profileName, pinned?.profileVersion, workload]);
  const { data, isOld, error, loading } = useLoaded(key, (signal) => call<ExplainPlanResponse>("PlannerService/ExplainPlan", JSON.parse(key!), signal));
  const baseline = useMemo(
    () => (isOld || data?.plan === undefined ? undefined : { plan: data.plan, tasks: byTask(data.tasks), warnings: data.warnings, error: null, loading: false }),
    [data, isOld],
  );
  return { baseline, error: loading ? null : error };
}
