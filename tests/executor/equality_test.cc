// Every schedule computes the same layer: outputs and dropped tokens of each family against a single-process reference
// in double precision, over random shapes and layouts (design.md §5). On ranks as threads, and with more draws on a
// virtual clock, where scattered task times also try the orders in which streams can overtake each other.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "executor/host/elements.h"
#include "executor/reference/reference_layer.h"
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
  std::vector<std::tuple<int, int32_t, bool>> routed;  // Pair number in the source batch, expert, kept.
  RouterStatistics statistics;
};

RankResult ResultOf(const GraphRunner& runner, const Layer& layer, size_t elements) {
  RankResult result;
  result.output.resize(elements);
  Load(runner.output(), ElementTypeOf(layer.bytes_per_element), elements, result.output.data());
  const auto rows = runner.routed_rows();
  const Routing routing = runner.routing();
  const int width = RoutingWidth(layer);
  for (int row = 0; row < rows.count; ++row) {
    for (int choice = 0; choice < width; ++choice) {
      const size_t at = static_cast<size_t>(rows.first_row + row) * width + choice;
      result.routed.emplace_back((rows.first_token + row) * width + choice, routing.expert[at], routing.slot[at] >= 0);
    }
  }
  result.statistics = runner.router_statistics();
  return result;
}

// One round: runs `graph` on the rank's layer and leaves what came out in `result`.
testing::Round RunGraph(const TaskGraph& graph, const std::shared_ptr<LayerOnRank>& layer, RankResult& result) {
  const auto runner = std::make_shared<std::unique_ptr<GraphRunner>>();
  const auto queue = [=, &graph] {
    *runner = layer->Prepare(graph);
    Store(layer->input.data(), ElementTypeOf(layer->layer.bytes_per_element), layer->input.size(), (*runner)->input());
    (*runner)->Enqueue();
  };
  const auto check = [=, &result](const Status& status) {
    ASSERT_TRUE(status.ok()) << status.message();
    result = ResultOf(**runner, layer->layer, layer->input.size());
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
    for (size_t i = 0; i < graphs.size(); ++i) rounds.push_back(RunGraph(graphs[i], layer, results[i][rank.rank]));
    return rounds;
  });
  return results;
}

void ExpectEqualsReference(const Case& test, const RankResult& result, const ReferenceOutput& reference) {
  const double tolerance = test.workload.layer.bytes_per_element == 4 ? 1e-5 : 2e-2;
  double error = 0;
  for (size_t i = 0; i < reference.output.size(); ++i) {
    error = std::max(error, std::abs(result.output[i] - reference.output[i]));
  }
  EXPECT_LE(error, tolerance * reference.largest_magnitude);
  for (const auto& [pair, expert, kept] : result.routed) {
    EXPECT_EQ(expert, reference.experts[pair]);
    EXPECT_EQ(kept, reference.kept[pair]) << "pair " << pair;
  }
}

// By the definitions of executor/router_statistics.h, in double.
RouterStatistics PlainStatistics(const Layer& layer, const std::vector<float>& input, const std::vector<float>& gate,
                                 const ReferenceOutput& reference) {
  RouterStatistics plain{.tokens = static_cast<int64_t>(input.size()) / layer.model_dim,
                         .pairs = std::vector<int64_t>(layer.experts, 0),
                         .kept = std::vector<int64_t>(layer.experts, 0),
                         .probability_sum = std::vector<double>(layer.experts, 0)};
  for (int64_t token = 0; token < plain.tokens; ++token) {
    std::vector<double> logits(layer.experts, 0);
    double all = 0;
    for (int expert = 0; expert < layer.experts; ++expert) {
      for (int i = 0; i < layer.model_dim; ++i) {
        logits[expert] += static_cast<double>(input[token * layer.model_dim + i]) * gate[expert * layer.model_dim + i];
      }
      all += std::exp(logits[expert]);
    }
    plain.squared_log_sum_exp_sum += std::log(all) * std::log(all);
    for (int expert = 0; expert < layer.experts; ++expert) {
      const double probability = std::exp(logits[expert]) / all;
      plain.probability_sum[expert] += probability;
      plain.entropy_sum -= probability * std::log(probability);
    }
  }
  for (size_t pair = 0; pair < reference.experts.size(); ++pair) {
    // An expert that chooses has no pair but those it takes.
    plain.pairs[reference.experts[pair]] += layer.gate != GateKind::kExpertChoice || reference.kept[pair];
    plain.kept[reference.experts[pair]] += reference.kept[pair];
  }
  return plain;
}

void ExpectSameStatistics(const RouterStatistics& found, const RouterStatistics& plain) {
  const auto near = [](double a, double b) { EXPECT_NEAR(a, b, 1e-5 * (1 + std::abs(b))); };
  EXPECT_EQ(found.tokens, plain.tokens);
  EXPECT_EQ(found.pairs, plain.pairs);
  EXPECT_EQ(found.kept, plain.kept);
  for (size_t expert = 0; expert < plain.probability_sum.size(); ++expert) {
    near(found.probability_sum[expert], plain.probability_sum[expert]);
  }
  near(found.squared_log_sum_exp_sum, plain.squared_log_sum_exp_sum);
  near(found.entropy_sum, plain.entropy_sum);
}

// What the MP group of `rank` did with its source batch: its slices added up, or what each of its ranks did.
RouterStatistics StatisticsOfBatch(const std::vector<RankResult>& results, const Layout& layout, bool sliced,
                                   int rank) {
  RouterStatistics sum = results[rank].statistics;
  for (const int other : MembersOf(Group::kTensor, layout, rank)) {
    if (sliced && other != rank) sum += results[other].statistics;
  }
  return sum;
}

void CheckCase(JobRunner& job, const Case& test) {
  const Layer& layer = test.workload.layer;
  const Layout& layout = test.workload.layout;
  std::vector<TaskGraph> graphs;
  const std::vector<Knobs> knobs = testing::AllKnobs(test.workload);
  for (const Knobs& one : knobs) {
    const auto graph = BuildSchedule(one, test.workload, test.cluster);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    graphs.push_back(*graph);
  }
  const auto results = RunGraphs(job, test, graphs);
  const LayerWeights full = MakeWeights(layer, ShardOf(layer, {}, 0), kWeightSeed);
  for (int rank = 0; rank < Ranks(test.cluster); ++rank) {
    const bool padded = test.workload.capacity_passing == CapacityPassing::kPadded;
    const std::vector<float> input = testing::InputOf(test, rank / layout.tensor_parallel);
    const int slots = SizesOf(layer, layout).slots;
    const ReferenceOutput whole = ComputeReference(layer, full, input, slots, 1);
    const int slices = layout.tensor_parallel;
    const ReferenceOutput sliced = ComputeReference(layer, full, input, (slots + slices - 1) / slices, slices);
    for (size_t i = 0; i < graphs.size(); ++i) {
      SCOPED_TRACE(StrCat(testing::Describe(knobs[i]), " rank ", rank));
      const bool gates_slices = knobs[i].family == Family::kParmS1 && slices > 1;
      const ReferenceOutput& reference = padded && gates_slices ? sliced : whole;
      ExpectEqualsReference(test, results[i][rank], reference);
      ExpectSameStatistics(StatisticsOfBatch(results[i], layout, gates_slices, rank),
                           PlainStatistics(layer, input, full.gate, reference));
    }
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

TEST_P(EqualityTest, EveryFamilyGivesTheReferencesOutputAndDropsTheSameTokens) {
  CheckRandomCases(Draws(), CapacityPassing::kExact, GetParam());
}

TEST_P(EqualityTest, PaddedCapacityDropsByTheShareOfEachSlice) {
  CheckRandomCases(Draws() / 4, CapacityPassing::kPadded, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Backends, EqualityTest, ::testing::ValuesIn(testing::Backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace moeplan
