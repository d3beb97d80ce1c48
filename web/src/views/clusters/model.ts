// What is known of each cluster, put together from what the planner's services say of profiles, agents, calibrations and
// drifts. Pure.
import type { AgentStatus, CalibrationStatus } from "../../../generated/moeplan/v1/agent_service";
import type { Drift } from "../../../generated/moeplan/v1/planner_service";
import type { ClusterOverview } from "../../../generated/moeplan/v1/profile_service";

/** A profile and the agents of the clusters that are calibrated into it; one of the two may be missing. */
export interface ClusterEntry {
  name: string;
  overview: ClusterOverview | null;
  agents: readonly AgentStatus[];
  /** Newest first. */
  calibrations: readonly CalibrationStatus[];
  /** Newest first. */
  drifts: readonly Drift[];
}

export interface Badge {
  kind: "good" | "warn" | "bad";
  text: string;
}

export const isActive = ({ state }: CalibrationStatus): boolean => state === "WAITING" || state === "RUNNING";
export const isOfName = ({ cluster, profileName }: CalibrationStatus, name: string): boolean =>
  cluster === name || profileName === name;

export const agentsCluster = ({ registration }: AgentStatus): string => registration?.cluster ?? "";

/** Profiles in the order given, then clusters that only agents or a calibration under way tell of, by name. */
export function entriesOf(
  overviews: readonly ClusterOverview[],
  agents: readonly AgentStatus[],
  calibrations: readonly CalibrationStatus[],
  drifts: readonly Drift[],
): ClusterEntry[] {
  const overviewOf = new Map(overviews.map((overview) => [overview.profileName, overview]));
  const others = [...agents.map(agentsCluster), ...calibrations.filter(isActive).map(({ cluster }) => cluster)];
  const profiled = new Set(calibrations.filter(({ profileName }) => overviewOf.has(profileName)).map(({ cluster }) => cluster));
  const unprofiled = [...new Set(others)].filter((name) => name !== "" && !overviewOf.has(name) && !profiled.has(name)).sort();
  const isMeasuredBy = (name: string, cluster: string): boolean =>
    cluster === name || calibrations.some((calibration) => calibration.profileName === name && calibration.cluster === cluster);
  return [...overviewOf.keys(), ...unprofiled].map((name) => ({
    name,
    overview: overviewOf.get(name) ?? null,
    agents: agents.filter((agent) => isMeasuredBy(name, agentsCluster(agent))),
    calibrations: calibrations.filter((calibration) => isOfName(calibration, name)),
    drifts: drifts.filter((drift) => drift.profileName === name),
  }));
}

export interface Shape {
  nodes: number;
  gpusPerNode: number;
}

/** As the profile has it, else as the agents say. */
export function shapeOf({ overview, agents }: ClusterEntry): Shape | null {
  if (overview?.cluster !== undefined) return { nodes: overview.cluster.nodes, gpusPerNode: overview.cluster.gpusPerNode };
  const registration = agents[0]?.registration;
  return registration === undefined ? null : { nodes: registration.nodes, gpusPerNode: registration.ranksPerNode };
}

const counted = (count: number, one: string, more: string): string => `${count} ${count === 1 ? one : more}`;

/** "8 nodes × 4 GPUs". */
export const shapeText = ({ nodes, gpusPerNode }: Shape): string =>
  `${counted(nodes, "node", "nodes")} × ${counted(gpusPerNode, "GPU", "GPUs")}`;

/** What somebody who looks over all clusters should know of this one. */
export function badgesOf({ overview, agents, calibrations, drifts }: ClusterEntry): Badge[] {
  const badges: Badge[] = [];
  if (overview === null) badges.push({ kind: "warn", text: "not calibrated" });
  const active = calibrations.find(isActive);
  if (active !== undefined) badges.push({ kind: "good", text: active.state === "RUNNING" ? "calibrating" : "calibration waits" });
  const lost = agents.filter(({ state }) => state === "LOST").length;
  if (lost > 0) badges.push({ kind: "bad", text: `${counted(lost, "agent", "agents")} lost` });
  const open = drifts.filter(({ state }) => state === "MEASURING" || state === "FAILED").length;
  if (open > 0) badges.push({ kind: "warn", text: counted(open, "drift", "drifts") });
  return badges;
}

/** Those whose name has `filter` in it, whatever the case. */
export function namedLike(entries: readonly ClusterEntry[], filter: string): ClusterEntry[] {
  const wanted = filter.trim().toLowerCase();
  return entries.filter(({ name }) => name.toLowerCase().includes(wanted));
}

/** What is known of node `node`'s agent: the last word of those that hold it, a live one before a lost one. */
export function nodeState(agents: readonly AgentStatus[], node: number): "live" | "lost" | "unknown" {
  const holding = agents.filter(
    ({ registration }) => registration !== undefined && registration.node <= node && node < registration.node + registration.heldNodes,
  );
  if (holding.some(({ state }) => state === "LIVE")) return "live";
  return holding.length > 0 ? "lost" : "unknown";
}

/** "node 3" or "nodes 0–7". */
export function nodesText({ registration }: AgentStatus): string {
  if (registration === undefined) return "–";
  const { node, heldNodes } = registration;
  return heldNodes === 1 ? `node ${node}` : `nodes ${node}–${node + heldNodes - 1}`;
}

/** The newest first, each once. */
export function mergedCalibrations(...lists: (readonly CalibrationStatus[])[]): CalibrationStatus[] {
  const byNumber = new Map<number, CalibrationStatus>();
  // Earlier lists win: they are the ones that are asked more often.
  for (const list of lists) for (const one of list) if (!byNumber.has(one.calibration)) byNumber.set(one.calibration, one);
  return [...byNumber.values()].sort((a, b) => b.calibration - a.calibration);
}

