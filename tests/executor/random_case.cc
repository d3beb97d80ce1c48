#include "tests/executor/random_case.h"

#include <optional>

#include "executor/layer/layer_weights.h"
#include "models/measurement/candidates.h"
#include "models/schedule/chunk_units.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "models/workload/expert.h"
#include "tests/executor/random_router.h"

namespace moeplan::testing {
namespace {

const char* PhaseText(Phase phase) {
  switch (phase) {
    case Phase::kForward: return " forward";
    case Phase::kBackward: return " backward";
    case Phase::kTraining: break;
  }
  return " training";
}

}  // namespace

std::string Describe(const Case& test) {
  const Layer& layer = test.workload.layer;
  const Layout& layout = test.workload.layout;
  return StrCat("B ", layer.batch, " L ", layer.sequence_length, " M ", layer.model_dim, " H ", layer.hidden_dim, " E ",
                layer.experts, " k ", layer.top_k, " f ", layer.capacity_factor, " bytes ", layer.bytes_per_element,
                " expert ", Name(layer.expert_kind), " matrices ", layer.expert_matrices, " gate ",
                static_cast<int>(layer.gate), " bias ", layer.expert_bias, " shared ", layer.shared_hidden_dim,
                " losses ", layer.aux_loss_coefficient, " ", layer.z_loss_coefficient, " limit ", layer.swiglu_limit,
                " router ", Describe(layer.router), " hot ", test.hot_expert, PhaseText(test.workload.phase), " TP ",
                layout.tensor_parallel, " EP ", layout.expert_parallel, " ESP ", layout.expert_sharding_parallel,
                " ranks ", Ranks(test.cluster));
}

std::string Describe(const Knobs& knobs) {
  std::string pieces = StrCat(PiecesOf(knobs));
  for (const double share : knobs.chunk_shares) pieces += StrCat(" ", share);
  return StrCat(Name(knobs.family), " pieces ", pieces, " saa ", knobs.overlapped_gather, " ", Name(knobs.all_to_all),
                " codecs ", Name(knobs.dispatch_codec), " ", Name(knobs.combine_codec));
}

std::vector<float> InputOf(const Case& test, int batch) {
  const Layer& layer = test.workload.layer;
  std::vector<float> input = executor::MakeInput(layer, test.workload.layout, batch, kWeightSeed);
  if (test.hot_expert < 0) return input;
  const executor::LayerWeights weights = executor::MakeWeights(layer, executor::ShardOf(layer, {}, 0), kWeightSeed);
  const float* favoured = weights.gate.data() + static_cast<size_t>(test.hot_expert) * layer.model_dim;
  for (size_t i = 0; i < input.size(); ++i) {
    const float leaning = 0.25F * input[i] + favoured[i % layer.model_dim];
    input[i] = layer.bytes_per_element == 2 ? executor::RoundToBfloat16(leaning) : leaning;
  }
  return input;
}

Case RandomCase(std::mt19937_64& random) {
  const auto pick = [&](std::initializer_list<int> values) { return values.begin()[random() % values.size()]; };
  const auto between = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
  const auto coefficient = [&](double most) {
    return between(0, 1) == 0 ? 0 : std::uniform_real_distribution(0.0, most)(random);
  };
  while (true) {
    Case test;
    test.cluster = {.nodes = pick({1, 2}), .gpus_per_node = pick({1, 2, 4})};
    Layout& layout = test.workload.layout;
    layout.tensor_parallel = pick({1, 2, 4});
    layout.expert_parallel = pick({1, 2, 4});
    layout.expert_sharding_parallel = pick({1, 2, 4});
    Layer& layer = test.workload.layer;
    layer = {.batch = between(1, 2),
             .sequence_length = between(1, 13),
             .model_dim = between(1, 20),
             .hidden_dim = between(4, 24),
             .experts = layout.expert_parallel * between(1, 4),
             .top_k = between(1, 3),
             .capacity_factor = std::uniform_real_distribution(0.3, 2.0)(random),
             .bytes_per_element = pick({2, 4}),
             .expert_matrices = pick({2, 3}),
             .expert_kind = static_cast<ExpertKind>(between(0, OwnNames<ExpertKind>::count())),
             .gate = static_cast<GateKind>(between(0, static_cast<int>(GateKind::kHash))),
             .expert_bias = between(0, 1) == 1,
             .shared_hidden_dim = pick({0, 0, between(1, 12)}),
             .aux_loss_coefficient = coefficient(2),
             .z_loss_coefficient = coefficient(1)};
    if (layer.gate == GateKind::kSwitch) layer.top_k = 1;
    if (layer.expert_kind != ExpertKind::kFfn) layer.expert_matrices = OwnExpertOf(layer.expert_kind).matrices;
    if (between(0, 2) == 0) test.hot_expert = between(0, layer.experts - 1);
    test.workload.phase = random() % 2 == 0 ? Phase::kForward : Phase::kTraining;
    DrawRouter(random, layer, test.workload.phase);
    // Every fourth layer also goes by codecs.
    const std::vector<Codec> codecs = AllFrom(Codec::kNone);
    const auto codec = [&] { return codecs[random() % codecs.size()]; };
    test.workload.allow_lossy = between(0, 3) == 0;
    test.workload.dispatch_codec = codec();
    test.workload.combine_codec = codec();
    for (int& units : test.chunk_units) units = between(1, 3);
    test.workload.min_chunk_bytes = 1;
    test.workload.max_chunks = 4;
    test.workload.max_partition_degree = 3;
    if (auto resolved = ResolveWorkload(test.workload, test.cluster); resolved.ok()) {
      test.workload = *resolved;
      return test;
    }
  }
}

namespace {

std::optional<Knobs> InUnequalPieces(const Knobs& variant, int pieces, const Case& test) {
  Knobs knobs = WithPieces(variant, pieces);
  knobs.chunk_shares = SharesOf({test.chunk_units.begin(), test.chunk_units.begin() + pieces});
  const bool possible = pieces > 1 && ChunkSharesAllowed(knobs, test.workload).ok();
  return possible ? std::optional(knobs) : std::nullopt;
}

}  // namespace

std::vector<Knobs> AllKnobs(const Case& test) {
  const Workload& workload = test.workload;
  std::vector<Knobs> all;
  for (const Family family : AllFrom(Family::kBaseline)) {
    if (!FamilyAllowed(family, workload, test.cluster).ok()) continue;
    for (const Knobs& variant : VariantsOf(family, workload.layout, test.cluster.gpus_per_node)) {
      const int most = MaxPieces(family, workload);
      const bool direct = variant.all_to_all == AllToAllAlgorithm::kDirect;
      for (int pieces = direct ? 1 : most; pieces <= most; ++pieces) all.push_back(WithPieces(variant, pieces));
      if (const auto unequal = InUnequalPieces(variant, most, test)) all.push_back(*unequal);
      // All pairs of codecs would be many; the pair of this case is one of them.
      for (const Knobs& coded : WithCodecs(variant, workload)) {
        const bool drawn =
            coded.dispatch_codec == workload.dispatch_codec && coded.combine_codec == workload.combine_codec;
        if (!drawn || coded == variant) continue;
        all.push_back(WithPieces(coded, most));
        if (const auto unequal = InUnequalPieces(coded, most, test)) all.push_back(*unequal);
      }
    }
  }
  return all;
}

}  // namespace moeplan::testing
