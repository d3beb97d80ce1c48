// ScheMoE's OptSche: in how many parts to cut a layer, and in which order to run their compression, all-to-alls and
// experts on one compute and one communication stream.
//
// Theorem 1's order is optimal only if t(C1) = t(C2), t(A1) = t(A2) and t(D1) = t(D2) (ScheMoE §4.1); codecs that
// differ by direction break that, so the exact optimum of the same tasks stands beside it. The paper leaves r to
// others; here it is enumerated. DIRECT all-to-alls over EP without contention, as the paper counts them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "models/timeline/pricer.h"
#include "models/workload/workload.h"
#include "planner/rules/explained_rule.h"
#include "planner/search/stage_order.h"

namespace moeplan::planner {

enum class Lane { kCompute, kCommunication };

struct ChunkStage {
  std::string name;
  Lane lane = Lane::kCompute;
  double time_s = 0;  // Of one chunk; finite, at least 0.
};

// The stages as a chain: chunk k of each needs chunk k of the one before (equations 3 to 9, with any number of stages
// and without the assumption that the two codecs are alike).
std::vector<OrderedStage> ChainOf(std::span<const ChunkStage> stages, int chunks);

// The order of equations 12 to 14 for stages that are called C1, A1, D1, E, C2, A2, D2 or a part of these.
StageOrder OptSche(std::span<const ChunkStage> stages, int chunks);

// The r in 1 ... max_partition_degree (1024 at most) of the smallest OptSche time, the smaller one of two that tie
// (planner/ties.h), and the best order at that r. A codec counts as the request says it, even one that changes
// nothing, such as BF16 of BF16 elements; allow_lossy, min_chunk_bytes and the phase play no part.
// kNotFound when the profile lacks a collective, EXPERT_GEMM or a codec kernel that the rule needs: the keys and the
// command that would measure them. Adds to `notes` what had to be extrapolated, and, where the search for the best
// order was not finished, a remark with the time that no order is below; and to `explained`, which may be null,
// definitions and times. kCancelled: stopped before r was known; a search for the best order that is stopped was not
// finished. Requires a workload resolved against profile.cluster.
StatusOr<SchemoeAnswer> SchemoeRule(const Workload& workload, const Profile& profile, PriceNotes& notes,
                                    ExplainedRule* explained = nullptr, const StopSignals& stop = {});

}  // namespace moeplan::planner
