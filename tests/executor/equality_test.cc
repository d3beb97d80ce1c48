// Every schedule computes the same layer: outputs and dropped tokens of each family against a single-process reference
// in double precision, over random shapes and layouts (design.md §5).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <mutex>
#include <random>

#include "executor/host/elements.h"
#include "executor/host/host_kernels.h"
#include "executor/reference/reference_layer.h"
#include "executor/runtime/graph_runner.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "tests/executor/rank_threads.h"

namespace moeplan {
namespace {

constexpr uint64_t kWeightSeed = 7;

struct Case {
  Workload workload;
  Cluster cluster;
};

std::string Describe(const Case& test) {
  const Layer& layer = test.workload.layer;
  const Layout& layout = test.workload.layout;
  return StrCat("B ", layer.batch, " L ", layer.sequence_length, " M ", layer.model_dim, " H ", layer.hidden_dim, " E ",
                layer.experts, " k ", layer.top_k, " f ", layer.capacity_factor, " bytes ", layer.bytes_per_element, " matrices ",
                layer.expert_matrices, " TP ", layout.tensor_parallel, " EP ", layout.expert_parallel, " ESP ",
                layout.expert_sharding_parallel, " ranks ", Ranks(test.cluster));
}

// A layout that resolves, over 1 to 8 ranks, with TP and ESP chosen apart.
Case RandomCase(std::mt19937_64& random) {
  const auto pick = [&](std::initializer_list<int> values) { return values.begin()[random() % values.size()]; };
  const auto between = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
  while (true) {
    Case test;
    test.cluster = {.nodes = pick({1, 2}), .gpus_per_node = pick({1, 2, 4})};
    Layout& layout = test.workload.layout;
    layout.tensor_parallel = pick({1, 2, 4});
    layout.expert_parallel = pick({1, 2, 4});
    layout.expert_sharding_parallel = pick({1, 2, 4});
    Layer& layer = test.workload.layer;
    layer = {.batch = between(1, 2), .sequence_length = between(1, 13), .model_dim = between(1, 20),
             .hidden_dim = between(4, 24), .experts = layout.expert_parallel * between(1, 3), .top_k = between(1, 3),
             .capacity_factor = std::uniform_real_distribution(0.3, 2.0)(random), .bytes_per_element = pick({2, 4}),
             .expert_matrices = pick({2, 3})};
    test.workload.min_chunk_bytes = 1;
    test.workload.max_chunks = 4;
    if (auto resolved = ResolveWorkload(test.workload, test.cluster); resolved.ok()) {
      test.workload = *resolved;
      return test;
    }
  }
}

std::vector<Knobs> AllKnobs(const Workload& workload) {
  std::vector<Knobs> all;
  for (const Family family : {Family::kBaseline, Family::kBaselineTp, Family::kParmS1, Family::kParmS2, Family::kMontaO1,
                              Family::kMontaO2, Family::kMontaO3}) {
    if (!FamilyAllowed(family, workload).ok()) continue;
    for (int chunks = 1; chunks <= MaxChunks(family, workload); ++chunks) all.push_back({.family = family, .chunks = chunks});
    if (family == Family::kParmS2 && workload.layout.tensor_parallel > 1 && GroupSize(Group::kExpertShard, workload.layout) > 1) {
      all.push_back({.family = family, .overlapped_gather = true});
    }
  }
  return all;
}

struct RankResult {
  std::vector<float> output;
  std::vector<std::tuple<int, int32_t, bool>> routed;  // Pair number in the source batch, expert, dropped.
};

// Runs every graph on every rank; results[graph][rank].
std::vector<std::vector<RankResult>> RunGraphs(const Case& test, const std::vector<TaskGraph>& graphs) {
  const Layer& layer = test.workload.layer;
  const Layout& layout = test.workload.layout;
  const int ranks = Ranks(test.cluster);
  std::vector<std::vector<RankResult>> results(graphs.size(), std::vector<RankResult>(ranks));
  testing::RunRanks(ranks, [&](testing::Rank rank) {
    const LayerWeights weights = MakeWeights(layer, ShardOf(layer, layout, rank.rank), kWeightSeed);
    const std::vector<float> input = MakeInput(layer, layout, rank.rank / layout.tensor_parallel, kWeightSeed);
    const auto kernels = MakeHostKernels(layer, weights);
    RankStreams streams(rank.device);
    auto groups = GroupCommunicators::Make(rank.world, layout);
    ASSERT_TRUE(groups.ok()) << groups.status().message();
    for (size_t i = 0; i < graphs.size(); ++i) {
      auto runner = GraphRunner::Prepare(
          graphs[i], {.rank = rank.rank, .device = rank.device, .streams = streams, .groups = *groups, .kernels = *kernels});
      ASSERT_TRUE(runner.ok()) << runner.status().message();
      const ElementType type = ElementTypeOf(layer.bytes_per_element);
      Store(input.data(), type, input.size(), (*runner)->input());
      (*runner)->Enqueue();
      const Status status = rank.device.Synchronize();
      ASSERT_TRUE(status.ok()) << status.message();
      RankResult& result = results[i][rank.rank];
      result.output.resize(input.size());
      Load((*runner)->output(), type, input.size(), result.output.data());
      const auto rows = (*runner)->routed_rows();
      const Routing routing = (*runner)->routing();
      for (int row = 0; row < rows.count; ++row) {
        for (int choice = 0; choice < layer.top_k; ++choice) {
          const size_t at = static_cast<size_t>(rows.first_row + row) * layer.top_k + choice;
          result.routed.emplace_back((rows.first_token + row) * layer.top_k + choice, routing.expert[at], routing.slot[at] < 0);
        }
      }
    }
  });
  return results;
}

void ExpectEqualsReference(const Case& test, const RankResult& result, const ReferenceOutput& reference) {
  double largest = 0, error = 0;
  for (size_t i = 0; i < reference.output.size(); ++i) {
    largest = std::max(largest, std::abs(reference.output[i]));
    error = std::max(error, std::abs(result.output[i] - reference.output[i]));
  }
  EXPECT_LE(error, (test.workload.layer.bytes_per_element == 4 ? 1e-5 : 2e-2) * largest);
  for (const auto& [pair, expert, dropped] : result.routed) {
    EXPECT_EQ(expert, reference.experts[pair]);
    EXPECT_EQ(dropped, reference.dropped[pair]) << "pair " << pair;
  }
}

void CheckCase(const Case& test) {
  const Layer& layer = test.workload.layer;
  const Layout& layout = test.workload.layout;
  std::vector<TaskGraph> graphs;
  const std::vector<Knobs> knobs = AllKnobs(test.workload);
  for (const Knobs& one : knobs) {
    const auto graph = BuildSchedule(one, test.workload, test.cluster);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    graphs.push_back(*graph);
  }
  const auto results = RunGraphs(test, graphs);
  const LayerWeights full = MakeWeights(layer, ShardOf(layer, {}, 0), kWeightSeed);
  for (int rank = 0; rank < Ranks(test.cluster); ++rank) {
    const bool padded = test.workload.capacity_passing == CapacityPassing::kPadded;
    const std::vector<float> input = MakeInput(layer, layout, rank / layout.tensor_parallel, kWeightSeed);
    const int slots = SizesOf(layer, layout).slots;
    const ReferenceOutput whole = ComputeReference(layer, full, input, slots, 1);
    const int slices = layout.tensor_parallel;
    const ReferenceOutput sliced = ComputeReference(layer, full, input, (slots + slices - 1) / slices, slices);
    for (size_t i = 0; i < graphs.size(); ++i) {
      SCOPED_TRACE(StrCat(Name(knobs[i].family), " chunks ", knobs[i].chunks, " saa ", knobs[i].overlapped_gather, " rank ", rank));
      const bool drops_by_slice = padded && knobs[i].family == Family::kParmS1;
      ExpectEqualsReference(test, results[i][rank], drops_by_slice ? sliced : whole);
    }
  }
}

// How many random layers; MOEPLAN_TEST_SEED repeats one run.
uint64_t Seed() {
  if (const char* seed = std::getenv("MOEPLAN_TEST_SEED")) return std::strtoull(seed, nullptr, 10);
  return std::random_device{}();
}

void CheckRandomCases(int count, CapacityPassing passing) {
  const uint64_t seed = Seed();
  std::printf("seed %llu (MOEPLAN_TEST_SEED repeats it)\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
    Case test = RandomCase(random);
    test.workload.capacity_passing = passing;
    SCOPED_TRACE(StrCat("case ", i, ": ", Describe(test)));
    CheckCase(test);
  }
}

TEST(EqualityTest, EveryFamilyGivesTheReferencesOutputAndDropsTheSameTokens) {
  CheckRandomCases(200, CapacityPassing::kExact);
}

TEST(EqualityTest, PaddedCapacityDropsByTheShareOfEachSlice) { CheckRandomCases(50, CapacityPassing::kPadded); }

}  // namespace
}  // namespace moeplan
