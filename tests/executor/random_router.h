// Routers and experts as today's models have them, drawn for tests of whole layers.
#pragma once

#include <algorithm>
#include <random>
#include <string>

#include "models/text.h"
#include "models/workload/names.h"
#include "models/workload/workload.h"

namespace moeplan::testing {

// Draws the router of a TOP_K layer whose experts and topK are known, and the limit of SwiGLU experts; each rule comes
// up in some draws and not in others. A layer with another gate keeps its router.
inline void DrawRouter(std::mt19937_64& random, Layer& layer, Phase phase) {
  const auto one_in = [&](int draws) { return random() % draws == 0; };
  // A value that BF16 rounds to the limit has another slope than before: of its gradient no reference tells which is
  // right.
  const bool is_swiglu = layer.expert_matrices == 3 && layer.expert_kind == ExpertKind::kFfn;
  const bool has_slopes = layer.bytes_per_element == 4 || phase == Phase::kForward;
  if (is_swiglu && has_slopes && one_in(2)) layer.swiglu_limit = 0.75;
  if (layer.gate != GateKind::kTopK || one_in(3)) return;
  Router& router = layer.router;
  if (!one_in(3)) router.score_function = ScoreFunction::kSigmoid;
  router.raw_weights = one_in(2);
  router.weight_scale = one_in(2) ? 1 : 2.5;
  router.bias = one_in(2);
  router.weighs_input = layer.top_k == 1 && one_in(2);
  router.correction_bias = router.score_function == ScoreFunction::kSigmoid && !one_in(3);
  for (const int groups : {4, 3, 2}) {
    const int of_group = layer.experts / groups;
    if (layer.experts % groups != 0 || of_group < 2) continue;
    router.expert_groups = groups;
    router.groups_per_token =
        std::max(1 + static_cast<int>(random() % groups), (layer.top_k + of_group - 1) / of_group);
    break;
  }
}

inline std::string Describe(const Router& router) {
  return StrCat(Name(router.score_function), " raw ", router.raw_weights, " scale ", router.weight_scale, " groups ",
                router.groups_per_token, " of ", router.expert_groups, " correction ", router.correction_bias, " bias ",
                router.bias, " input ", router.weighs_input);
}

}  // namespace moeplan::testing
