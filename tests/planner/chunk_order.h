// ScheMoE's chain of stages, played and searched.
#pragma once

#include <vector>

#include "planner/rules/schemoe.h"
#include "planner/search/stage_order.h"

namespace moeplan {

inline planner::PlayedStages PlayOrder(const std::vector<planner::ChunkStage>& stages, int chunks,
                                       const planner::StageOrder& order) {
  return planner::PlayStages(planner::ChainOf(stages, chunks), order);
}

inline planner::StageOrderOutcome SearchOrder(const std::vector<planner::ChunkStage>& stages, int chunks,
                                              const planner::StageOrder& known, int budget_nodes) {
  return planner::SearchStageOrder(planner::ChainOf(stages, chunks), known, budget_nodes);
}

}  // namespace moeplan
