// ScheMoE's chain of stages, played and searched.
#pragma once

#include <vector>

#include "planner/rules/schemoe.h"
#include "planner/search/stage_order.h"

namespace moeplan {

inline PlayedStages PlayOrder(const std::vector<ChunkStage>& stages, int chunks, const StageOrder& order) {
  return PlayStages(ChainOf(stages, chunks), order);
}

inline StageOrderOutcome SearchOrder(const std::vector<ChunkStage>& stages, int chunks, const StageOrder& known,
                                     int budget_nodes) {
  return SearchStageOrder(ChainOf(stages, chunks), known, budget_nodes);
}

}  // namespace moeplan
