// What is there: every cluster that has a profile or agents, and one of them in full.
import { useMemo } from "preact/hooks";

import { call, callAll } from "../../api/client";
import { useLoaded } from "../../api/use_call";
import { Command, EmptyNote, ErrorNote } from "../../components/notes";
import type { ViewProps } from "../../route";
import { ClusterDetail } from "./detail";
import { ClusterList } from "./list";
import { entriesOf } from "./model";
import "./view.css";

import type { AgentStatus, ListAgentsResponse, ListCalibrationsResponse } from "../../../generated/moeplan/v1/agent_service";
import type { ListDriftsResponse } from "../../../generated/moeplan/v1/planner_service";
import type { ClusterOverview, ListClustersResponse } from "../../../generated/moeplan/v1/profile_service";

const slowEveryMs = 15_000;
const everyMs = 5000;
const mostClusters = 2000;

function FirstSteps() {
  return (
    <EmptyNote title="Nothing has been measured yet">
      <p>Measure the processors of this machine, as one node of four ranks, into the planner's database:</p>
      <Command text="moeplan calibrate --local 4 --db moeplan.db" />
      <p>Or connect each node of a cluster to this planner, and have the agents measure it:</p>
      <Command text="moeplan agent --planner HOST:PORT" />
      <Command text="moeplan calibrate --planner HOST:PORT" />
      <p>Or look at a simulated cluster first:</p>
      <Command text="moeplan calibrate --simulated deploy/examples/cluster.json --db moeplan.db" />
      <p class="muted">
        <code>HOST:PORT</code> is the planner's gRPC address, <code>--db</code> the database that it serves. This page fills by itself.
      </p>
    </EmptyNote>
  );
}

export function ClustersView({ params }: ViewProps) {
  const clusters = useLoaded(
    "clusters",
    (signal) =>
      callAll<ClusterOverview, ListClustersResponse>("ProfileService/ListClusters", {}, (answer) => answer.clusters, mostClusters, signal),
    slowEveryMs,
  );
  const agents = useLoaded(
    "agents",
    (signal) => callAll<AgentStatus, ListAgentsResponse>("AgentService/ListAgents", {}, (answer) => answer.agents, mostClusters, signal),
    everyMs,
  );
  const calibrations = useLoaded(
    "calibrations",
    (signal) => call<ListCalibrationsResponse>("AgentService/ListCalibrations", { pageSize: 100 }, signal),
    everyMs,
  );
  const drifts = useLoaded("drifts", (signal) => call<ListDriftsResponse>("PlannerService/ListDrifts", { pageSize: 1000 }, signal), slowEveryMs);

  const entries = useMemo(
    () => entriesOf(clusters.data ?? [], agents.data ?? [], calibrations.data?.calibrations ?? [], drifts.data?.drifts ?? []),
    [clusters.data, agents.data, calibrations.data, drifts.data],
  );
  const wanted = params["profile"];
  const current = entries.find(({ name }) => name === wanted) ?? (wanted === undefined ? entries[0] : undefined);

  const failed = [clusters, agents, calibrations, drifts].find(({ error, data }) => error !== null && data === null);
  const failure = failed?.error ?? null;
  if (clusters.data === null) {
    return clusters.error === null ? <p class="muted" role="status">Loading the clusters …</p> : <ErrorNote error={clusters.error} />;
  }
  if (entries.length === 0) return <>{failure !== null && <ErrorNote error={failure} />}<FirstSteps /></>;
  return (
    <>
      {failure !== null && <ErrorNote error={failure} />}
      <div class="columns clusters">
        <ClusterList entries={entries} current={current?.name ?? ""} params={params} />
        {current === undefined
          ? <ErrorNote message={`There is no cluster named ${JSON.stringify(wanted)}. Choose one from the list.`} />
          : <ClusterDetail key={current.name} entry={current} onProfileChanged={clusters.reload} />}
      </div>
    </>
  );
}
