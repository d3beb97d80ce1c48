// A model, a cluster and a profile small enough to count by hand.
#pragma once

#include "models/cost/profile.h"
#include "models/layout/layout_answer.h"
#include "tests/planner/by_hand.h"

namespace moeplan {

// A model of 4 layers, the last two with experts: M 32, 4 heads of 8, 2 of keys; H 64, 8 experts of 48, k 2.

inline ModelConfig SmallModel() {
  ModelConfig model;
  model.moe_layer = {false, false, true, true};
  model.model_dim = 32;
  model.dense_hidden_dim = 64;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.experts = 8;
  model.top_k = 2;
  model.expert_hidden_dim = 48;
  model.vocab = 100;
  model.tied_embeddings = false;
  return model;
}

inline constexpr double kAttention = 32 * 8 * (4 + 2 + 2 + 4);  // Query, key, value, output: 3072 parameters.
inline constexpr double kDense = 2 * 32 * 64;                   // 4096
inline constexpr double kExpert = 2 * 32 * 48;                  // 3072
inline constexpr double kRouter = 32 * 8;                       // 256
inline constexpr double kVocabulary = 100 * 32;                 // 3200

inline LayoutRequest SmallRequest() {
  return {.model = SmallModel(), .gpus = 8, .global_batch = 16, .sequence_length = 64, .top = 5};
}

// 2 nodes of 4; links of 1 GB/s between nodes and 4 inside, some groups measured.
inline Profile SmallProfile() {
  Profile profile;
  profile.cluster = {.nodes = 2, .gpus_per_node = 4, .peak_flops_per_s = 1e12};
  profile.collectives = {
      Line(Over(Collective::kAllToAll, {2, 1}), 2e-5, 5e-10),
      Line(Over(Collective::kAllToAll, {8, 4}), 3e-5, 9e-10),
      Line(Over(Collective::kAllToAll, {4, 4}), 1e-5, 2e-10),
      Line(Over(Collective::kAllGather, {4, 4}), 1e-5, 2e-10),
      Line(Over(Collective::kAllGather, {2, 1}), 2e-5, 5e-10),
      Line(Over(Collective::kReduceScatter, {4, 4}), 1e-5, 2e-10),
      Line(Over(Collective::kAllReduce, {2, 1}), 2e-5, 1e-9),
  };
  profile.kernels = {Line(Kernel::kExpertGemm, 1e-5, 2e-12), Line(Kernel::kGate, 5e-6, 1e-11),
                     Line(Kernel::kPermute, 5e-6, 1e-11), Line(Kernel::kDeviceCopy, 5e-6, 1e-11)};
  return profile;
}

}  // namespace moeplan
