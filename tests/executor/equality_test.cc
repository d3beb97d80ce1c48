// Every schedule computes the same layer: outputs, gradients and dropped tokens of each family against a single-process
// reference in double precision, over random shapes and layouts (design.md §5). On ranks as threads, and with more
// draws on a virtual clock, where scattered task times also try the orders in which streams can overtake each other.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "executor/host/elements.h"
#include "executor/reference/reference_gradients.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "tests/executor/job_runner.h"
#include "tests/executor/layer_on_rank.h"
#include "tests/executor/random_case.h"

namespace moeplan {
namespace {

using testing::Case;
using testing::JobRunner;
using testing::kWeightSeed;
using testing::LayerOnRank;

struct RankResult {
  std::vector<float> output;
  std::vector<std::tuple<int, int32_t, bool>> routed;  // Pair number in the source batch, expert, dropped.
  // Of training graphs.
  std::vector<float> input_gradient, gate_gradient;
  ExpertGradients expert_gradients;
};

std::vector<float> Loaded(const std::byte* from, ElementType type, size_t count) {
  std::vector<float> values(count);
  Load(from, type, count, values.data());
  return values;
}

RankResult ResultOf(GraphRunner& runner, const LayerOnRank& on_rank, Phase phase) {
  const Layer& layer = on_rank.layer;
  const ElementType type = ElementTypeOf(layer.bytes_per_element);
  RankResult result;
  result.output = Loaded(runner.output(), type, on_rank.input.size());
  const auto rows = runner.routed_rows();
  const Routing routing = runner.routing();
  for (int row = 0; row < rows.count; ++row) {
    for (int choice = 0; choice < layer.top_k; ++choice) {
      const size_t at = static_cast<size_t>(rows.first_row + row) * layer.top_k + choice;
      result.routed.emplace_back((rows.first_token + row) * layer.top_k + choice, routing.expert[at],
                                 routing.slot[at] < 0);
    }
  }
  if (phase == Phase::kForward) return result;
  result.input_gradient = Loaded(runner.input_gradient(), type, on_rank.input.size());
  result.gate_gradient.assign(runner.gate_gradient(), runner.gate_gradient() + on_rank.weights.gate.size());
  result.expert_gradients = on_rank.gradients;
  return result;
}

// One round: runs `graph` on the rank's layer and leaves what came out in `result`.
testing::Round RunGraph(const TaskGraph& graph, Phase phase, const std::shared_ptr<LayerOnRank>& layer,
                        RankResult& result) {
  const auto runner = std::make_shared<std::unique_ptr<GraphRunner>>();
  const auto queue = [=, &graph] {
    const ElementType type = ElementTypeOf(layer->layer.bytes_per_element);
    *runner = layer->Prepare(graph);
    Store(layer->input.data(), type, layer->input.size(), (*runner)->input());
    if (phase != Phase::kForward) {
      layer->gradients = ZeroGradients(layer->weights);
      Store(layer->output_gradient.data(), type, layer->output_gradient.size(), (*runner)->output_gradient());
    }
    (*runner)->Enqueue(phase);
  };
  const auto check = [=, &result](const Status& status) {
    ASSERT_TRUE(status.ok()) << status.message();
    result = ResultOf(**runner, *layer, phase);
    runner->reset();
  };
  return {queue, check};
}

// Runs every graph on every rank; results[graph][rank].
std::vector<std::vector<RankResult>> RunGraphs(JobRunner& job, const Case& test, const std::vector<TaskGraph>& graphs) {
  const int ranks = Ranks(test.cluster);
  std::vector<std::vector<RankResult>> results(graphs.size(), std::vector<RankResult>(ranks));
  job.Run(ranks, [&](const testing::Rank& rank) {
    const auto layer = std::make_shared<LayerOnRank>(test, rank);
    std::vector<testing::Round> rounds;
    for (size_t i = 0; i < graphs.size(); ++i)
      rounds.push_back(RunGraph(graphs[i], test.workload.phase, layer, results[i][rank.rank]));
    return rounds;
  });
  return results;
}

double ToleranceOf(const Layer& layer) { return layer.bytes_per_element == 4 ? 1e-5 : 2e-2; }

// What a source batch gives.
struct Reference {
  ReferenceOutput forward;
  ReferenceGradients gradients;
};

Reference ReferenceOf(const Case& test, const LayerWeights& full, int batch, int slices) {
  const Layer& layer = test.workload.layer;
  const Layout& layout = test.workload.layout;
  const std::vector<float> input = MakeInput(layer, layout, batch, kWeightSeed);
  const int slots = SizesOf(layer, layout).slots;
  Reference reference;
  reference.forward = ComputeReference(layer, full, input, (slots + slices - 1) / slices, slices);
  if (test.workload.phase == Phase::kForward) return reference;
  reference.gradients = ComputeReferenceGradients(
      layer, full, input, MakeOutputGradient(layer, layout, batch, kWeightSeed), reference.forward);
  return reference;
}

void ExpectClose(const std::vector<float>& values, const ReferenceGradient& reference, const Layer& layer,
                 const char* what) {
  ASSERT_GE(values.size(), reference.values.size()) << what;
  double error = 0;
  for (size_t i = 0; i < reference.values.size(); ++i) {
    error = std::max(error, std::abs(values[i] - reference.values[i]));
  }
  EXPECT_LE(error, ToleranceOf(layer) * reference.largest_magnitude) << what;
}

void ExpectEqualsReference(const Case& test, const RankResult& result, const Reference& reference) {
  const Layer& layer = test.workload.layer;
  ExpectClose(result.output, {reference.forward.output, reference.forward.largest_magnitude}, layer, "output");
  for (const auto& [pair, expert, dropped] : result.routed) {
    EXPECT_EQ(expert, reference.forward.experts[pair]);
    EXPECT_EQ(dropped, reference.forward.dropped[pair]) << "pair " << pair;
  }
  if (test.workload.phase == Phase::kForward) return;
  ExpectClose(result.input_gradient, reference.gradients.input, layer, "input gradient");
  ExpectClose(result.gate_gradient, reference.gradients.gate, layer, "gate gradient");
}

void AddTo(std::vector<float>& sum, const std::vector<float>& part) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
}

// The part of a full [experts][rows][columns] gradient that a shard has, cut by columns or by rows.
ReferenceGradient ShardOfColumns(const ReferenceGradient& full, const Layer& layer, const ExpertShard& shard) {
  ReferenceGradient part{.values = {}, .largest_magnitude = full.largest_magnitude};
  if (full.values.empty()) return part;
  for (int row = shard.first_expert * layer.model_dim; row < (shard.first_expert + shard.experts) * layer.model_dim;
       ++row) {
    const auto first = full.values.begin() + static_cast<size_t>(row) * layer.hidden_dim + shard.first_hidden;
    part.values.insert(part.values.end(), first, first + shard.hidden);
  }
  return part;
}
ReferenceGradient ShardOfRows(const ReferenceGradient& full, const Layer& layer, const ExpertShard& shard) {
  ReferenceGradient part{.values = {}, .largest_magnitude = full.largest_magnitude};
  for (int expert = shard.first_expert; expert < shard.first_expert + shard.experts; ++expert) {
    const auto first =
        full.values.begin() + (static_cast<size_t>(expert) * layer.hidden_dim + shard.first_hidden) * layer.model_dim;
    part.values.insert(part.values.end(), first, first + static_cast<size_t>(shard.hidden) * layer.model_dim);
  }
  return part;
}

// Summed over the ranks that hold the same shard, expert weight gradients are those of all source batches together.
void ExpectExpertGradients(const Case& test, const std::vector<RankResult>& by_rank,
                           const std::vector<Reference>& by_batch) {
  const Layer& layer = test.workload.layer;
  const Layout& layout = test.workload.layout;
  ReferenceGradients all;
  for (const Reference& batch : by_batch) {
    all.up += batch.gradients.up;
    all.gate_up += batch.gradients.gate_up;
    all.down += batch.gradients.down;
  }
  const int shards = layout.expert_parallel * layout.expert_sharding_parallel;
  for (int first = 0; first < shards; ++first) {
    ExpertGradients sum = by_rank[first].expert_gradients;
    for (size_t rank = first + shards; rank < by_rank.size(); rank += shards) {
      AddTo(sum.up, by_rank[rank].expert_gradients.up);
      AddTo(sum.gate_up, by_rank[rank].expert_gradients.gate_up);
      AddTo(sum.down, by_rank[rank].expert_gradients.down);
    }
    SCOPED_TRACE(StrCat("shard of rank ", first));
    const ExpertShard shard = ShardOf(layer, layout, first);
    ExpectClose(sum.up, ShardOfColumns(all.up, layer, shard), layer, "gradient of up");
    ExpectClose(sum.gate_up, ShardOfColumns(all.gate_up, layer, shard), layer, "gradient of gate_up");
    ExpectClose(sum.down, ShardOfRows(all.down, layer, shard), layer, "gradient of down");
  }
}

void CheckCase(JobRunner& job, const Case& test) {
  const Layer& layer = test.workload.layer;
  const int tensor_ranks = test.workload.layout.tensor_parallel;
  std::vector<TaskGraph> graphs;
  const std::vector<Knobs> knobs = testing::AllKnobs(test);
  for (const Knobs& one : knobs) {
    const auto graph = BuildSchedule(one, test.workload, test.cluster);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    graphs.push_back(*graph);
  }
  const auto results = RunGraphs(job, test, graphs);
  const LayerWeights full = MakeWeights(layer, ShardOf(layer, {}, 0), kWeightSeed);
  std::vector<Reference> whole, sliced;
  for (int batch = 0; batch < Ranks(test.cluster) / tensor_ranks; ++batch) {
    whole.push_back(ReferenceOf(test, full, batch, /*slices=*/1));
    sliced.push_back(ReferenceOf(test, full, batch, tensor_ranks));
  }
  for (size_t i = 0; i < graphs.size(); ++i) {
    const bool drops_by_slice =
        test.workload.capacity_passing == CapacityPassing::kPadded && knobs[i].family == Family::kParmS1;
    const std::vector<Reference>& references = drops_by_slice ? sliced : whole;
    SCOPED_TRACE(testing::Describe(knobs[i]));
    for (int rank = 0; rank < Ranks(test.cluster); ++rank) {
      SCOPED_TRACE(StrCat("rank ", rank));
      ExpectEqualsReference(test, results[i][rank], references[rank / tensor_ranks]);
    }
    if (test.workload.phase != Phase::kForward) ExpectExpertGradients(test, results[i], references);
  }
}

void CheckRandomCases(int count, CapacityPassing passing, const testing::Backend& backend) {
  const uint64_t seed = testing::PrintedSeed();
  std::mt19937_64 random(seed);
  for (int i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
    Case test = testing::RandomCase(random);
    test.workload.capacity_passing = passing;
    SCOPED_TRACE(StrCat("case ", i, ": ", Describe(test)));
    CheckCase(*backend.make_runner(seed + i), test);
  }
}

class EqualityTest : public ::testing::TestWithParam<testing::Backend> {
 protected:
  // Threads cost more than the work of small layers, and connections more than threads.
  static int Draws() {
    if (GetParam().name == "virtual") return 1000;
    return GetParam().name == "gloo" ? 20 : 200;
  }
};

TEST_P(EqualityTest, EveryFamilyGivesTheReferencesOutputGradientsAndDrops) {
  CheckRandomCases(Draws(), CapacityPassing::kExact, GetParam());
}

TEST_P(EqualityTest, PaddedCapacityDropsByTheShareOfEachSlice) {
  CheckRandomCases(Draws() / 4, CapacityPassing::kPadded, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Backends, EqualityTest, ::testing::ValuesIn(testing::Backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace moeplan
