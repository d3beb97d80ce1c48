// The layers of each virtual stage as Megatron Core writes them: E for the embedding, t for a layer, m for a layer that
// predicts a further token, L for the loss, | between stages, x*3 and (...)*3 for repetitions. "Et*2|(t*3|)*2t*2mL" is
// four stages of 2, 3, 3 and 2 layers. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/status.h"

namespace moeplan::planner {

struct PipelineLayout {
  std::vector<int> layers;  // Of each virtual stage, in pipeline order.
  int next_tokens = 0;      // Layers that predict further tokens, on the last stage.

  friend bool operator==(const PipelineLayout&, const PipelineLayout&) = default;
};

// Requires a stage.
std::string PipelineLayoutText(const PipelineLayout& layout);

// kInvalidInput: it is no such text, it has more stages or layers than a model can have, or a letter stands where no
// stage can be cut from it (E not first, L not last).
StatusOr<PipelineLayout> ParsePipelineLayout(std::string_view text);

}  // namespace moeplan::planner
