// A plan in words, as the command prints it. Pure.
import type { Plan } from "../generated/moeplan/v1/plan";

// As in models/schedule/chunk_units.h.
const mostUnits = 64;
const tolerance = 1e-4;

/** Shares as whole units: "1:6:1". */
export function ratioOf(shares: readonly number[]): string {
  for (let units = shares.length; units <= mostUnits; ++units) {
    const taken = shares.map((share) => share * units);
    if (taken.every((part) => part > 1 - tolerance && Math.abs(part - Math.round(part)) <= tolerance)) return taken.map(Math.round).join(":");
  }
  return shares.map((share) => share.toPrecision(3)).join(":");
}

/** "MONTA_O3 with PIPE with 3 chunks of sizes 1:6:1". */
export function describePlan(plan: Plan): string {
  let text: string = plan.schedule;
  if (plan.allToAll !== "DIRECT") text += ` with ${plan.allToAll}`;
  if (plan.communicationCtas > 0) text += ` with ${plan.communicationCtas} CTAs`;
  if (plan.chunks > 1) text += ` with ${plan.chunks} chunks`;
  if (plan.partitionDegree > 1) text += ` in ${plan.partitionDegree} partitions`;
  if (plan.chunkShares.length > 0) text += ` of sizes ${ratioOf(plan.chunkShares)}`;
  if (plan.overlappedGather) text += " with the overlapped gather";
  if (plan.dispatchCodec !== "NONE") text += `, ${plan.dispatchCodec} there`;
  if (plan.combineCodec !== "NONE") text += `, ${plan.combineCodec} back`;
  return text;
}
