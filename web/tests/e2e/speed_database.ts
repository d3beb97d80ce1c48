// What `npm run speed` measures on: 100 profiles that can plan, 100,000 samples, half of them of one profile and 10,000 of
// those of one cost, samples that were set aside, and runs. Every sample is one of a simulated calibration, with noise.
import { join } from "node:path";

import { clusterFile, hostileName, workloads } from "./fixtures";
import { moeplan, type Planner, root } from "./planner";

import type { Plan, PlanResponse } from "../../generated/moeplan/v1/plan";
import type { GetProfileResponse, ListSamplesResponse, StoredSample } from "../../generated/moeplan/v1/profile_service";
import type { Sample } from "../../generated/moeplan/v1/samples";

const profiles = 100;
const samples = 100_000;
const samplesOfOther = 500;
export const largeProfile = "west";
const samplesOfLarge = samples - (profiles - 1) * samplesOfOther;
export const largeCost = "ALL_TO_ALL groupSize 8 ranksPerNode 4";
export const samplesOfCost = 10_000;
const setAside = 300;
const runs = 48;

const samplesOfRequest = 1000;
const gridFile = join(root, "deploy/examples/grid-2x4.json");

export const otherProfile = (index: number): string => (index === 42 ? hostileName : `profile-${String(index).padStart(3, "0")}`);

/** -0.5 to 0.5, the same in every run: it only needs to look noisy. */
function noise(seed: number): number {
  const value = Math.sin(seed * 12.9898) * 43758.5453;
  return value - Math.floor(value) - 0.5;
}

const noisy = (sample: Sample, seed: number, factor: number): Sample => ({
  ...sample,
  timeS: sample.timeS.map((timeS, repeat) => timeS * factor * (1 + 0.06 * noise(seed * 7 + repeat))),
  provenance: { ...sample.provenance, hostname: `host-${seed % 4}.example` },
});

/** `count` samples, `templates` over and over. */
const copies = (templates: readonly StoredSample[], count: number, seed: number, factor = 1): Sample[] =>
  Array.from({ length: count }, (_, index) => noisy(templates[index % templates.length]!.sample!, seed + index, factor));

async function append(planner: Planner, name: string, all: readonly Sample[], cluster: unknown): Promise<void> {
  for (let from = 0; from < all.length; from += samplesOfRequest) {
    const request = { requestId: `speed ${name} ${from} of ${all.length}`.slice(0, 128), samples: { name, cluster, samples: all.slice(from, from + samplesOfRequest) } };
    await planner.call("ProfileService/AppendSamples", request);
  }
}

async function fillSamples(planner: Planner): Promise<void> {
  const { profile } = await planner.call<GetProfileResponse>("ProfileService/GetProfile", { profileName: largeProfile });
  const cluster = profile!.cluster;
  const { samples: templates } = await planner.call<ListSamplesResponse>("ProfileService/ListSamples", { profileName: largeProfile, pageSize: 1000 });
  const ofCost = templates.filter(({ cost }) => cost === largeCost);
  const ofOthers = templates.filter(({ cost }) => cost !== largeCost);
  await append(planner, largeProfile, [
    ...copies(ofCost, samplesOfCost - ofCost.length, 0),
    ...copies(ofOthers, samplesOfLarge - samplesOfCost - ofOthers.length, samplesOfCost),
    // 64 MiB in a microsecond, over links of 1 GB/s.
    ...copies(ofCost, setAside, 0).map((sample) => ({ ...sample, bytes: 2 ** 26, timeS: [1e-6], provenance: { ...sample.provenance, linkBytesPerS: "1e9" } })),
  ], cluster);
  await planner.call("ProfileService/FitProfile", { requestId: "speed", profileName: largeProfile });
  for (let index = 1; index < profiles; ++index) {
    const name = otherProfile(index);
    await append(planner, name, copies(templates, samplesOfOther, index * samplesOfOther, 1 + (index % 7) / 10), cluster);
    await planner.call("ProfileService/FitProfile", { requestId: `speed ${index}`, profileName: name });
  }
}

/** Workloads that differ: of each plan one run a minute is kept. */
export const workloadOf = (index: number): object => {
  const one = workloads[index % workloads.length] as { name: string; layer: { sequenceLength: number } };
  const { layer } = one;
  return { ...one, name: `${one.name} ${index}`, layer: { ...layer, sequenceLength: layer.sequenceLength + 64 * Math.floor(index / workloads.length) } };
};

const stretched = ({ timeline }: Plan, factor: number): Plan["timeline"] =>
  timeline.map((task) => ({ ...task, startS: task.startS * factor, endS: task.endS * factor }));

async function reportRuns(planner: Planner): Promise<void> {
  for (let index = 0; index < runs; ++index) {
    const plan = await planner.call<PlanResponse>("PlannerService/Plan", { workload: workloadOf(index), profileName: largeProfile, view: "FULL" });
    const ranks = [{ rank: 0, timeline: stretched(plan.best!, 1 + 0.2 * noise(index)) }];
    await planner.call("PlannerService/ReportRun", { requestId: `speed ${index}`, plan: { ...plan, candidates: [] }, ranks });
  }
}

/** Fills the new database of `planner`. */
export async function fill(planner: Planner): Promise<void> {
  moeplan("calibrate", "--simulated", clusterFile, "--layouts", gridFile, "--db", planner.db, "--profile-name", largeProfile, "--budget", "10s", "--json");
  await fillSamples(planner);
  await reportRuns(planner);
}
