// From a ranked layout to the question how its MoE layer runs. Pure.
import type { Cluster } from "../../../generated/moeplan/v1/cluster";
import type { RankLayoutsRequest } from "../../../generated/moeplan/v1/planner_service";
import type { RankedLayout } from "../../../generated/moeplan/v1/report";
import type { Layout, Workload } from "../../../generated/moeplan/v1/workload";

/** "TP 8, EP 8, ESP 1, CP 2, PP 4, DP 16", as the command prints it. */
export function degreesText(layout: Layout | undefined): string {
  if (layout === undefined) return "";
  return `TP ${layout.tensorParallel}, EP ${layout.expertParallel}, ESP ${layout.expertShardingParallel}, CP ${layout.contextParallel}, PP ${layout.pipelineParallel}, DP ${layout.dataParallel}`;
}

/** A row by its degrees, and where its contexts lie if that is across the experts' ranks: two rows may have the same degrees. */
export function rowText({ layout, horizontalContexts }: Pick<RankedLayout, "layout" | "horizontalContexts">): string {
  return `${degreesText(layout)}${horizontalContexts ? ", horizontal" : ""}`;
}

/** The model's MoE layer as this layout runs it: forward and backward, on one micro-batch, in as many pieces as layouts were ranked with. */
export function layerOf(imported: Workload, ranked: RankedLayout, { sequenceLength, zeroStage, recompute }: RankLayoutsRequest, mostPieces: number): Workload {
  return {
    ...imported,
    ...(imported.layer === undefined ? {} : { layer: { ...imported.layer, batch: ranked.microBatch, sequenceLength } }),
    layout: ranked.layout,
    phase: "TRAINING",
    zeroStage,
    recompute,
    maxChunks: mostPieces,
    maxPartitionDegree: mostPieces,
  };
}

/** The axis that gives the profile's cluster as many nodes as `gpus` fill; null: it has them, or none does. */
export function nodesAxis(gpus: number, cluster: Cluster | undefined): string | null {
  if (cluster === undefined || cluster.gpusPerNode < 1 || gpus % cluster.gpusPerNode !== 0) return null;
  const nodes = gpus / cluster.gpusPerNode;
  return nodes === cluster.nodes ? null : `cluster.nodes=${nodes}`;
}

/** Micro-batches around the layout's own. */
export function batchAxis(microBatch: number): string {
  const batches = [microBatch / 2, microBatch, microBatch * 2, microBatch * 4].filter((batch) => batch >= 1 && Number.isInteger(batch));
  return `layer.batch=${batches.join(",")}`;
}
