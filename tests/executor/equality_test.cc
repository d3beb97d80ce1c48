// Every schedule computes the same layer: outputs, gradients and dropped tokens of each family against a single-process
// reference in double precision, over random shapes and layouts (design.md §5). On ranks as threads, and with more
// draws on a virtual clock, where scattered task times also try the orders in which streams can overtake each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "executor/host/elements.h"
#include "executor/reference/reference_gradients.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "models/workload/codec.h"
#include "tests/executor/job_runner.h"
#include "tests/executor/layer_on_rank.h"
#include "tests/executor/plain_statistics.h"
#include "tests/executor/random_case.h"
#include "tests/test_seed.h"

namespace moeplan::executor {
namespace {

using testing::Case;
using testing::JobRunner;
using testing::kWeightSeed;
using testing::LayerOnRank;

struct RankResult {
  std::vector<float> output;
  std::vector<std::tuple<int, int32_t, bool>> routed;  // Pair number in the source batch, expert, kept.
  RouterStatistics statistics;
  // Of training graphs.
  std::vector<float> input_gradient, gate_gradient;
  LayerGradients gradients;
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
  const int width = RoutingWidth(layer);
  for (int row = 0; row < rows.count; ++row) {
    for (int choice = 0; choice < width; ++choice) {
      const size_t at = static_cast<size_t>(rows.first_row + row) * width + choice;
      result.routed.emplace_back((rows.first_token + row) * width + choice, routing.expert[at], routing.slot[at] >= 0);
    }
  }
  result.statistics = *runner.router_statistics();
  if (phase == Phase::kForward) return result;
  result.input_gradient = Loaded(runner.input_gradient(), type, on_rank.input.size());
  result.gate_gradient.assign(runner.gate_gradient(), runner.gate_gradient() + GateGradientValues(layer));
  result.gradients = on_rank.gradients;
  return result;
}

void SetToZero(LayerGradients& gradients) {
  for (ExpertGradients* part : {&gradients.experts, &gradients.shared}) {
    for (std::vector<float>* tensor :
         {&part->up, &part->gate_up, &part->down, &part->up_bias, &part->gate_up_bias, &part->down_bias}) {
      std::ranges::fill(*tensor, 0.0F);
    }
  }
}

// How the passes of a graph are run: as one, one after the other, or the backward pass in two halves.
enum class Passes { kAtOnce, kApart, kInHalves };

void QueuePasses(GraphRunner& runner, Phase phase, Passes passes, executor::RankStreams& streams) {
  if (passes == Passes::kAtOnce) return runner.Enqueue(phase);
  runner.Enqueue(Phase::kForward);
  if (passes == Passes::kApart) return runner.Enqueue(Phase::kBackward);
  runner.Enqueue(BackwardHalf::kInputGradients);
  streams.Join();
  streams.Fork();
  runner.Enqueue(BackwardHalf::kWeightGradients);
}

// Runs `graph` twice on the rank's layer and leaves in `result` what came out of the second run, which replays the work
// of the first: its input was another one, so that counts and routes of the first would be wrong.
std::vector<testing::Round> RunGraph(const TaskGraph& graph, Phase phase, Passes passes,
                                     const std::shared_ptr<LayerOnRank>& layer, RankResult& result) {
  const auto runner = std::make_shared<std::unique_ptr<GraphRunner>>();
  const auto run = [=](const std::vector<float>& input) {
    const ElementType type = ElementTypeOf(layer->layer.bytes_per_element);
    Store(input.data(), type, input.size(), (*runner)->input());
    if (phase != Phase::kForward) {
      SetToZero(layer->gradients);
      Store(layer->output_gradient.data(), type, layer->output_gradient.size(), (*runner)->output_gradient());
    }
    QueuePasses(**runner, phase, passes, layer->runtime.streams());
    layer->GiveGradients();
  };
  const auto queue_other = [=, &graph] {
    *runner = layer->Prepare(graph);
    run({layer->input.rbegin(), layer->input.rend()});
  };
  const auto check_other = [](const Status& status) { ASSERT_TRUE(status.ok()) << status.message(); };
  const auto check = [=, &result](const Status& status) {
    ASSERT_TRUE(status.ok()) << status.message();
    result = ResultOf(**runner, *layer, phase);
    runner->reset();
  };
  return {{queue_other, check_other}, {[=] { run(layer->input); }, check}};
}

// Runs every graph on every rank; results[graph][rank].
std::vector<std::vector<RankResult>> RunGraphs(JobRunner& job, const Case& test, const std::vector<TaskGraph>& graphs) {
  const int ranks = Ranks(test.cluster);
  std::vector<std::vector<RankResult>> results(graphs.size(), std::vector<RankResult>(ranks));
  job.Run(ranks, [&](const testing::Rank& rank) {
    const auto layer = std::make_shared<LayerOnRank>(test, rank);
    std::vector<testing::Round> rounds;
    for (size_t i = 0; i < graphs.size(); ++i) {
      Passes passes = Passes::kAtOnce;
      if (test.workload.phase == Phase::kBackward) passes = i % 2 == 0 ? Passes::kApart : Passes::kInHalves;
      for (testing::Round& round : RunGraph(graphs[i], test.workload.phase, passes, layer, results[i][rank.rank])) {
        rounds.push_back(std::move(round));
      }
    }
    return rounds;
  });
  return results;
}

// Relative to what an element would be if none of its terms cancelled. A codec's error is relative to a row's largest
// value, and passes a few sums on its way.
double ToleranceOf(const Layer& layer, const Knobs& knobs) {
  double tolerance = layer.bytes_per_element == 4 ? 1e-5 : 2e-2;
  for (const Codec codec : {knobs.dispatch_codec, knobs.combine_codec}) {
    tolerance += 8 * ErrorBoundOf(codec, layer.bytes_per_element).relative;
  }
  return tolerance;
}

// What a source batch gives.
struct Reference {
  std::vector<float> input;
  ReferenceOutput forward;
  ReferenceGradients gradients;
};

Reference ReferenceOf(const Case& test, const LayerWeights& full, int batch, int slices) {
  const Layer& layer = test.workload.layer;
  const Layout& layout = test.workload.layout;
  const int slots = SizesOf(layer, layout).slots;
  Reference reference;
  reference.input = testing::InputOf(test, batch);
  reference.forward = ComputeReference(layer, full, reference.input, (slots + slices - 1) / slices, slices);
  if (test.workload.phase == Phase::kForward) return reference;
  reference.gradients = ComputeReferenceGradients(
      layer, full, reference.input, MakeOutputGradient(layer, layout, batch, kWeightSeed), reference.forward);
  return reference;
}

void ExpectClose(const std::vector<float>& values, const ReferenceGradient& reference, double tolerance,
                 const char* what) {
  ASSERT_GE(values.size(), reference.values.size()) << what;
  double error = 0;
  for (size_t i = 0; i < reference.values.size(); ++i) {
    const double difference = std::abs(values[i] - reference.values[i]);
    if (!(difference <= error)) error = difference;  // Not std::max: a NaN must not be overlooked.
  }
  EXPECT_LE(error, tolerance * reference.largest_magnitude) << what;
}

void ExpectEqualsReference(const Case& test, double tolerance, const RankResult& result, const Reference& reference) {
  ExpectClose(result.output, {reference.forward.output, reference.forward.largest_magnitude}, tolerance, "output");
  for (const auto& [pair, expert, kept] : result.routed) {
    EXPECT_EQ(expert, reference.forward.experts[pair]);
    EXPECT_EQ(kept, reference.forward.kept[pair]) << "pair " << pair;
  }
  if (test.workload.phase == Phase::kForward) return;
  ExpectClose(result.input_gradient, reference.gradients.input, tolerance, "input gradient");
  ExpectClose(result.gate_gradient, reference.gradients.gate, tolerance, "gate gradient");
}

// The part of a full [experts][rows][columns] gradient with the shard's experts, and of these [first, first + count) of
// the rows or columns.
ReferenceGradient CutColumns(const ReferenceGradient& full, const ExpertShard& shard, int rows, int columns) {
  ReferenceGradient part{.values = {}, .largest_magnitude = full.largest_magnitude};
  if (full.values.empty()) return part;
  for (int row = shard.first_expert * rows; row < (shard.first_expert + shard.experts) * rows; ++row) {
    const auto first = full.values.begin() + static_cast<size_t>(row) * columns + shard.first_hidden;
    part.values.insert(part.values.end(), first, first + shard.hidden);
  }
  return part;
}
ReferenceGradient CutRows(const ReferenceGradient& full, const ExpertShard& shard, int rows, int columns) {
  ExpertShard flat = shard;
  flat.first_hidden *= columns;
  flat.hidden *= columns;
  return CutColumns(full, flat, /*rows=*/1, rows * columns);
}

void ExpectGradients(const ExpertGradients& sum, const ReferenceExpertGradients& full, const ExpertShard& shard,
                     int model, int hidden_dim, double tolerance) {
  ExpectClose(sum.up, CutColumns(full.up, shard, model, hidden_dim), tolerance, "gradient of up");
  ExpectClose(sum.gate_up, CutColumns(full.gate_up, shard, model, hidden_dim), tolerance, "gradient of gate_up");
  ExpectClose(sum.down, CutRows(full.down, shard, hidden_dim, model), tolerance, "gradient of down");
  ExpectClose(sum.up_bias, CutColumns(full.up_bias, shard, 1, hidden_dim), tolerance, "gradient of up's bias");
  ExpectClose(sum.gate_up_bias, CutColumns(full.gate_up_bias, shard, 1, hidden_dim), tolerance,
              "gradient of gate_up's bias");
  ExpertShard whole_rows = shard;
  whole_rows.first_hidden = 0;
  whole_rows.hidden = shard.adds_last_bias ? model : 0;
  ExpectClose(sum.down_bias, CutColumns(full.down_bias, whole_rows, 1, model), tolerance, "gradient of down's bias");
}

void AddTo(std::vector<float>& sum, const std::vector<float>& part) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
}
void AddTo(ExpertGradients& sum, const ExpertGradients& part) {
  AddTo(sum.up, part.up);
  AddTo(sum.gate_up, part.gate_up);
  AddTo(sum.down, part.down);
  AddTo(sum.up_bias, part.up_bias);
  AddTo(sum.gate_up_bias, part.gate_up_bias);
  AddTo(sum.down_bias, part.down_bias);
}

// Summed over the ranks that hold the same shard, weight gradients are those of all source batches together.
void ExpectWeightGradients(const Case& test, double tolerance, const std::vector<RankResult>& by_rank,
                           const std::vector<Reference>& by_batch) {
  const Layer& layer = test.workload.layer;
  const Layout& layout = test.workload.layout;
  ReferenceExpertGradients experts, shared;
  for (const Reference& batch : by_batch) {
    experts += batch.gradients.experts;
    shared += batch.gradients.shared;
  }
  const auto sum_over = [&](int first, int stride, ExpertGradients LayerGradients::*part) {
    ExpertGradients sum = by_rank[first].gradients.*part;
    for (size_t rank = first + stride; rank < by_rank.size(); rank += stride) AddTo(sum, by_rank[rank].gradients.*part);
    return sum;
  };
  const int shards = layout.expert_parallel * layout.expert_sharding_parallel;
  for (int first = 0; first < shards; ++first) {
    SCOPED_TRACE(StrCat("experts of rank ", first));
    ExpectGradients(sum_over(first, shards, &LayerGradients::experts), experts, ShardOf(layer, layout, first).experts,
                    layer.model_dim, layer.hidden_dim, tolerance);
  }
  for (int first = 0; first < layout.tensor_parallel; ++first) {
    SCOPED_TRACE(StrCat("shared expert of rank ", first));
    ExpectGradients(sum_over(first, layout.tensor_parallel, &LayerGradients::shared), shared,
                    ShardOf(layer, layout, first).shared, layer.model_dim, layer.shared_hidden_dim, tolerance);
  }
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
    const bool is_s1 = knobs[i].family == Family::kParmS1;
    const bool gates_slices = (is_s1 || knobs[i].family == Family::kOncePerNode) && tensor_ranks > 1;
    const bool drops_by_slice = is_s1 && tensor_ranks > 1 && test.workload.capacity_passing == CapacityPassing::kPadded;
    const std::vector<Reference>& references = drops_by_slice ? sliced : whole;
    SCOPED_TRACE(testing::Describe(knobs[i]));
    const double tolerance = ToleranceOf(layer, knobs[i]);
    for (int rank = 0; rank < Ranks(test.cluster); ++rank) {
      SCOPED_TRACE(StrCat("rank ", rank));
      const Reference& reference = references[rank / tensor_ranks];
      ExpectEqualsReference(test, tolerance, results[i][rank], reference);
      ExpectSameStatistics(StatisticsOfBatch(results[i], test.workload.layout, gates_slices, rank),
                           testing::PlainStatistics(layer, reference.input, full, reference.forward));
    }
    if (test.workload.phase != Phase::kForward) ExpectWeightGradients(test, tolerance, results[i], references);
  }
}

void CheckRandomCases(int count, CapacityPassing passing, const testing::Backend& backend) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  for (int i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
    Case test = testing::RandomCase(random);
    test.workload.capacity_passing = passing;
    // Both passes of a graph as one run, or apart (Passes).
    if (test.workload.phase == Phase::kTraining && random() % 2 == 0) test.workload.phase = Phase::kBackward;
    SCOPED_TRACE(StrCat("case ", i, ": ", Describe(test)));
    CheckCase(*backend.make_runner(seed + i), test);
  }
}

// Programs that run this test beside another one take a share of its draws.
#ifndef MOEPLAN_TEST_SHARE
#define MOEPLAN_TEST_SHARE 1
#endif

class EqualityTest : public ::testing::TestWithParam<testing::Backend> {
 protected:
  // Threads cost more than the work of small layers, and connections more than threads.
  static int Draws() {
    if (GetParam().name == "virtual") return 2000 / MOEPLAN_TEST_SHARE;
    return (GetParam().name == "gloo" ? 20 : 400) / MOEPLAN_TEST_SHARE;
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
}  // namespace moeplan::executor
