import { describe, expect, it } from "vitest";

import { shellWord } from "../../src/components/shell_word";
import { badgesOf, entriesOf, mergedCalibrations, namedLike, nodesText, nodeState, shapeOf, shapeText } from "../../src/views/clusters/model";
import { topologyOf } from "../../src/views/clusters/topology";

import type { AgentStatus, CalibrationStatus } from "../../generated/moeplan/v1/agent_service";
import type { Drift } from "../../generated/moeplan/v1/planner_service";
import type { ClusterOverview } from "../../generated/moeplan/v1/profile_service";

const overview = (profileName: string): ClusterOverview => ({
  profileName, profileVersion: 1, createdAt: "2026-01-01T00:00:00Z", versions: 1,
  cluster: { nodes: 2, gpusPerNode: 4, peakFlopsPerS: 0, deviceMemoryBytes: 0, nodeLinkBytesPerS: 0, networkBytesPerS: 0 },
  collectives: 1, kernels: 1, samples: 10, rejectedSamples: 0, lastSampleAt: "", worstCost: "",
});

const agent = (cluster: string, node: number, state: "LIVE" | "LOST", heldNodes = 1): AgentStatus => ({
  registration: {
    name: `agent-${node}`, version: "0.1.0", instance: `i${node}${state}`, cluster, nodes: 3, node, heldNodes, ranksPerNode: 8, backend: "host",
    hardware: {}, nicBytesPerS: 0, collectiveDeadlineS: 0,
  },
  state, silentS: 0, clockJumps: 0, lastClockJumpS: 0, lostBecause: "",
});

const calibration = (number: number, cluster: string, state: CalibrationStatus["state"], profileName = cluster): CalibrationStatus => ({
  calibration: number, cluster, profileName, state, detail: "", done: 0, samples: 0, profileVersion: 0, createdAt: "",
});

const drift = (profileName: string, state: Drift["state"]): Drift => ({
  profileName, profileVersion: 1, cost: "GATE", ratio: 2, runs: 1, state, calibration: 0, renewedVersion: 0, detail: "", foundAt: "",
});

describe("clusters", () => {
  it("are profiles first, then what only agents or a calibration under way tell of", () => {
    const entries = entriesOf(
      [overview("west"), overview("east")],
      [agent("west", 0, "LIVE"), agent("new", 0, "LIVE"), agent("default", 0, "LIVE")],
      [calibration(3, "later", "WAITING"), calibration(2, "gone", "DONE"), calibration(1, "default", "DONE", "east")],
      [drift("west", "RENEWED")],
    );
    expect(entries.map(({ name }) => name)).toEqual(["west", "east", "later", "new"]);
    expect(entries[0]!.agents).toHaveLength(1);
    expect(entries[0]!.drifts).toHaveLength(1);
    // A calibration of another cluster for this profile is this profile's, too, and so are that cluster's agents.
    expect(entries[1]!.calibrations.map((one) => one.calibration)).toEqual([1]);
    expect(entries[1]!.agents.map(({ registration }) => registration?.cluster)).toEqual(["default"]);
    expect(entries[3]!.overview).toBeNull();
  });

  it("have the profile's shape, else the agents'", () => {
    const [west, other] = entriesOf([overview("west")], [agent("other", 0, "LIVE")], [], []);
    expect(shapeText(shapeOf(west!)!)).toBe("2 nodes × 4 GPUs");
    expect(shapeText(shapeOf(other!)!)).toBe("3 nodes × 8 GPUs");
    expect(shapeText({ nodes: 1, gpusPerNode: 1 })).toBe("1 node × 1 GPU");
  });

  it("wear what should be seen from afar", () => {
    const [entry] = entriesOf(
      [overview("west")],
      [agent("west", 0, "LIVE"), agent("west", 1, "LOST")],
      [calibration(1, "west", "RUNNING")],
      [drift("west", "RENEWED"), drift("west", "FAILED"), drift("west", "MEASURING")],
    );
    expect(badgesOf(entry!).map(({ text }) => text)).toEqual(["calibrating", "1 agent lost", "2 drifts"]);
    expect(badgesOf(entriesOf([overview("calm")], [], [], [])[0]!)).toEqual([]);
  });

  it("are found by a part of their name", () => {
    const entries = entriesOf(["West-1", "east", "northwest"].map(overview), [], [], []);
    expect(namedLike(entries, " WEST ").map(({ name }) => name)).toEqual(["West-1", "northwest"]);
    expect(namedLike(entries, "")).toHaveLength(3);
  });
});

describe("agents", () => {
  it("tell how a node is; a live one counts where a lost one held it before", () => {
    const agents = [agent("w", 0, "LOST", 2), agent("w", 1, "LIVE")];
    expect([0, 1, 2].map((node) => nodeState(agents, node))).toEqual(["lost", "live", "unknown"]);
    expect(nodesText(agents[0]!)).toBe("nodes 0–1");
    expect(nodesText(agents[1]!)).toBe("node 1");
  });
});

describe("calibrations", () => {
  it("stand once, newest first, as the first list has them", () => {
    const merged = mergedCalibrations([calibration(2, "w", "RUNNING")], [calibration(1, "w", "DONE"), calibration(2, "w", "WAITING")]);
    expect(merged.map((one) => [one.calibration, one.state])).toEqual([[2, "RUNNING"], [1, "DONE"]]);
  });
});

describe("topology", () => {
  it("draws at most eight nodes and eight GPUs, and counts the rest", () => {
    const topology = topologyOf(12, 10);
    expect(topology.nodes).toHaveLength(8);
    expect(topology.nodes[0]!.gpus).toHaveLength(8);
    expect([topology.moreNodes, topology.moreGpus]).toEqual([4, 2]);
  });

  it("draws no link where there is nothing to join", () => {
    const topology = topologyOf(1, 1);
    expect(topology.network).toBeNull();
    expect(topology.nodes[0]!.bar).toBeNull();
    expect(topology.nodes[0]!.uplink).toBeNull();
  });

  it.each([[1, 1], [1, 8], [2, 4], [4, 8], [5, 5], [8, 2], [100, 16]])("of %i nodes of %i GPUs keeps everything inside", (nodes, gpus) => {
    const { width, height, nodes: drawn, nodeWidth, nodeHeight, gpuSize } = topologyOf(nodes, gpus);
    for (const node of drawn) {
      expect(node.x).toBeGreaterThanOrEqual(0);
      expect(node.x + nodeWidth).toBeLessThanOrEqual(width);
      expect(node.y + nodeHeight).toBeLessThanOrEqual(height);
      for (const gpu of node.gpus) {
        expect(gpu.x).toBeGreaterThan(node.x);
        expect(gpu.x + gpuSize).toBeLessThan(node.x + nodeWidth);
        expect(gpu.y + gpuSize).toBeLessThan(node.y + nodeHeight);
      }
    }
  });
});

describe("commands", () => {
  it("take any name for one word", () => {
    expect(shellWord("west-1.a")).toBe("west-1.a");
    expect(shellWord("a b")).toBe("'a b'");
    expect(shellWord("it's; rm $x")).toBe(`'it'\\''s; rm $x'`);
  });
});
