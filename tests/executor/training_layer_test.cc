// A layer as a training job has it, on four ranks as threads: passes under way in any order, halves of backward passes,
// fewer tokens, and ranks whose plans differ.
#include "executor/training_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include "models/plan/build_plan.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "models/workload/names.h"
#include "tests/executor/example_layer.h"
#include "tests/test_seed.h"

namespace moeplan::executor {
namespace {

using namespace testing::example_layer;

constexpr Family kFamilies[] = {Family::kBaseline, Family::kBaselineTp, Family::kParmS1,
                                Family::kParmS2,   Family::kMontaO1,    Family::kMontaO2,
                                Family::kMontaO3,  Family::kPipeline,   Family::kOncePerNode};

// The rows of a rank, whose tokens lean towards the expert `hot` unless that is -1.
Rows LeaningRowsOf(const LayerPlan& plan, int rank, uint64_t seed, int hot) {
  Rows rows = RowsOf(plan, rank, seed);
  if (hot >= 0) LeanTowards(hot, plan.workload.layer, WeightsOf(plan, rank, seed), rows.input);
  return rows;
}

// One call of a rank, made with `seed`: what goes in, what came out, and what the reference says.
struct Call {
  Call(const LayerPlan& plan, int rank, uint64_t seed, int hot = -1)
      : layer(plan.workload.layer),
        weights(WeightsOf(plan, rank, seed)),
        gradients(ZeroGradients(weights)),
        gate_gradient(weights.gate.size()),
        rows(LeaningRowsOf(plan, rank, seed, hot)),
        reference(ReferenceOf(plan, rows, seed)),
        there(RowBytesOf(rows.input, layer)),
        back(RowBytesOf(rows.output_gradient, layer)) {}

  TrainingLayer::Pass Forward(TrainingLayer& moe) {
    const int tokens = static_cast<int>(rows.input.size()) / layer.model_dim;
    auto pass = moe.Forward(tokens, there, there, weights);
    MOEPLAN_CHECK(pass.ok());
    ExpectClose(RowFloatsOf(there, layer), reference.forward.output, reference.forward.largest_magnitude, layer,
                "output");
    return *std::move(pass);
  }
  void ExpectInputGradient() const {
    const ReferenceGradients& expected = reference.gradients;
    ExpectClose(RowFloatsOf(back, layer), expected.input.values, expected.input.largest_magnitude, layer,
                "input gradient");
    ExpectClose(gate_gradient, expected.gate.values, expected.gate.largest_magnitude, layer, "gate gradient");
  }
  void Backward(TrainingLayer::Pass& pass) {
    EXPECT_EQ(pass.Backward(back, back, &gradients, gate_gradient), OkStatus());
    ExpectInputGradient();
  }

  const Layer layer;
  const LayerWeights weights;
  LayerGradients gradients;
  std::vector<float> gate_gradient;
  const Rows rows;
  const Reference reference;
  Bytes there, back;
};

// Every rank's gradients of a call, of which the test compares sums.
class Gathered {
 public:
  void Add(int rank, const Call& call) {
    const std::lock_guard lock(mutex_);
    by_rank_[rank] = call.gradients.experts;
  }
  // The sum of a tensor over the ranks that hold the shard of `rank` (which differ by a multiple of EP·ESP ranks).
  std::vector<float> Sum(int rank, const Layout& layout, std::vector<float> ExpertGradients::*tensor) const {
    const int stride = layout.expert_parallel * layout.expert_sharding_parallel;
    std::vector<float> sum((by_rank_[rank].*tensor).size());
    for (int other = rank % stride; other < kRanks; other += stride) {
      std::ranges::transform(sum, by_rank_[other].*tensor, sum.begin(), std::plus<>());
    }
    return sum;
  }

 private:
  std::mutex mutex_;
  ExpertGradients by_rank_[kRanks];
};

// The rank's part of the reference's gradient of "up", which is [E][M][H]; its sum over all source batches.
void ExpectUpGradients(const Gathered& found, const LayerPlan& plan, uint64_t seed, int hot = -1) {
  const Layer& layer = plan.workload.layer;
  const Layout& layout = plan.workload.layout;
  ReferenceExpertGradients expected;
  for (int rank = 0; rank < kRanks; rank += layout.tensor_parallel) {
    expected += ReferenceOf(plan, LeaningRowsOf(plan, rank, seed, hot), seed).gradients.experts;
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const ExpertShard shard = ShardOf(layer, layout, rank).experts;
    std::vector<double> own;
    for (int row = 0; row < shard.experts * layer.model_dim; ++row) {
      const double* first = expected.up.values.data() +
                            (static_cast<size_t>(shard.first_expert) * layer.model_dim + row) * layer.hidden_dim +
                            shard.first_hidden;
      own.insert(own.end(), first, first + shard.hidden);
    }
    ExpectClose(found.Sum(rank, layout, &ExpertGradients::up), own, expected.up.largest_magnitude, layer, "up");
  }
}

TEST(TrainingLayerTest, PassesUnderWayGoBackInAnyOrder) {
  for (const Family family : kFamilies) {
    SCOPED_TRACE(std::string(Name(family)));
    const LayerPlan plan = PlanOf(family);
    Gathered first, second, third;
    OnEveryRank([&](HostRank& host, int rank) {
      const auto moe = TrainingLayer::Make(plan, host.runtime());
      ASSERT_TRUE(moe.ok()) << moe.status().message();
      Call one(plan, rank, 1), two(plan, rank, 2), three(plan, rank, 3);
      {
        TrainingLayer::Pass pass_one = one.Forward(**moe), pass_two = two.Forward(**moe);
        two.Backward(pass_two);
        TrainingLayer::Pass pass_three = three.Forward(**moe);
        one.Backward(pass_one);
        three.Backward(pass_three);
      }
      // Forward for nobody, then again on the same buffers.
      Call again(plan, rank, 2);
      { TrainingLayer::Pass dropped = again.Forward(**moe); }
      Call last(plan, rank, 1);
      TrainingLayer::Pass pass = last.Forward(**moe);
      last.Backward(pass);
      first.Add(rank, one);
      second.Add(rank, two);
      third.Add(rank, last);
    });
    ExpectUpGradients(first, plan, 1);
    ExpectUpGradients(second, plan, 2);
    ExpectUpGradients(third, plan, 1);
  }
}

TEST(TrainingLayerTest, WeightGradientsMayComeLaterThanOtherPasses) {
  for (const Family family : kFamilies) {
    SCOPED_TRACE(std::string(Name(family)));
    const LayerPlan plan = PlanOf(family);
    Gathered first, second;
    OnEveryRank([&](HostRank& host, int rank) {
      const auto moe = TrainingLayer::Make(plan, host.runtime());
      ASSERT_TRUE(moe.ok()) << moe.status().message();
      Call one(plan, rank, 1), two(plan, rank, 2);
      TrainingLayer::Pass pass_one = one.Forward(**moe), pass_two = two.Forward(**moe);
      for (const auto& [call, pass] : {std::pair{&one, &pass_one}, std::pair{&two, &pass_two}}) {
        EXPECT_EQ(pass->BackwardOfInput(call->back, call->back, call->gate_gradient), OkStatus());
        call->ExpectInputGradient();
        EXPECT_TRUE(std::ranges::all_of(call->gradients.experts.up, [](float value) { return value == 0; }));
        EXPECT_TRUE(pass->LastTimeline(Phase::kBackward).empty());
      }
      EXPECT_EQ(pass_two.AddWeightGradients(&two.gradients), OkStatus());
      EXPECT_EQ(pass_one.AddWeightGradients(&one.gradients), OkStatus());
      EXPECT_EQ(pass_one.AddWeightGradients(&one.gradients).code(), StatusCode::kInvalidInput);
      EXPECT_FALSE(pass_one.LastTimeline(Phase::kBackward).empty());
      first.Add(rank, one);
      second.Add(rank, two);
    });
    ExpectUpGradients(first, plan, 1);
    ExpectUpGradients(second, plan, 2);
  }
}

LayerPlan WithTokens(LayerPlan plan, int tokens) {
  plan.workload.layer.batch = 1;
  plan.workload.layer.sequence_length = tokens;
  return plan;
}

TEST(TrainingLayerTest, FewerTokensHaveTheCapacityOfSoMany) {
  for (const Family family : kFamilies) {
    SCOPED_TRACE(std::string(Name(family)));
    LayerPlan plan = PlanOf(family);  // 18 tokens.
    if (family == Family::kMontaO2 || family == Family::kMontaO3) plan.knobs.chunks = 3;
    if (family == Family::kPipeline) plan.knobs.partition_degree = 2;
    Gathered few;
    OnEveryRank([&](HostRank& host, int rank) {
      const auto moe = TrainingLayer::Make(plan, host.runtime());
      ASSERT_TRUE(moe.ok()) << moe.status().message();
      for (const int tokens : {18, 1, 7, 18, 7}) {
        SCOPED_TRACE(StrCat(tokens, " tokens"));
        Call call(WithTokens(plan, tokens), rank, 5);
        TrainingLayer::Pass pass = call.Forward(**moe);
        call.Backward(pass);
        if (tokens == 7) few.Add(rank, call);
      }
    });
    ExpectUpGradients(few, WithTokens(plan, 7), 5);
  }
}

// ---- A source batch in parts.

// A layer of 18 tokens, the parts that its source batches come in, and the order in which these go back.
struct PartsCase {
  LayerPlan plan;
  std::vector<int> parts;
  std::vector<int> order;  // Number i is part i of the first source batch, or behind those of the second.
  int hot = -1;            // The expert that tokens lean towards; -1: none.
  std::string text;
};

PartsCase DrawParts(std::mt19937_64& random, bool dropless) {
  const auto pick = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[random() % std::size(all)];
  };
  PartsCase made = {.plan = PlanOf(kFamilies[random() % std::size(kFamilies)])};
  Workload& workload = made.plan.workload;
  Layer& layer = workload.layer;
  layer.gate = pick(GateKind::kTopK, GateKind::kTopK, GateKind::kSwitch, GateKind::kRandom, GateKind::kHash);
  layer.top_k = layer.gate == GateKind::kSwitch ? 1 : pick(1, 2, 3);
  layer.capacity_factor = dropless ? 0 : pick(0.3, 0.8, 1.0, 1.7, 6.0);
  if (dropless) made.hot = pick(-1, 0, 3);
  layer.aux_loss_coefficient = pick(0.0, 2.0);
  layer.shared_hidden_dim = pick(0, 6);
  layer.bytes_per_element = pick(4, 4, 4, 2);
  workload.layout = pick(Layout{2, 2, 2}, Layout{2, 4, 1}, Layout{1, 2, 2}, Layout{2, 2, 1}, Layout{4, 1, 4},
                         Layout{1, 4, 1}, Layout{4, 2, 2});
  const Family family = made.plan.knobs.family;
  const bool shards_over_tensor = family == Family::kBaselineTp || family == Family::kMontaO1 ||
                                  family == Family::kMontaO2 || family == Family::kMontaO3;
  if (shards_over_tensor) {
    workload.layout = pick(Layout{2, 2, 2}, Layout{4, 1, 4}, Layout{1, 4, 1}, Layout{2, 1, 2});
  }
  // The shared expert's columns are cut over TP.
  if (workload.layout.tensor_parallel == 4) layer.shared_hidden_dim = layer.shared_hidden_dim == 0 ? 0 : 8;
  if (workload.layout.expert_sharding_parallel == 4) layer.hidden_dim = 12;
  if (family == Family::kMontaO2 || family == Family::kMontaO3) made.plan.knobs.chunks = pick(1, 2);
  if (family == Family::kPipeline || family == Family::kParmS1 || family == Family::kParmS2) {
    made.plan.knobs.partition_degree = pick(1, 2);
  }
  std::set<int> cuts = {0, 18};
  for (const size_t parts = 2 + random() % 3; cuts.size() < parts + 1;)
    cuts.insert(1 + static_cast<int>(random() % 17));
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) made.parts.push_back(*std::next(cut) - *cut);
  for (size_t i = 0; i < 2 * made.parts.size(); ++i) made.order.push_back(static_cast<int>(i));
  std::ranges::shuffle(made.order, random);
  made.text =
      StrCat(Name(family), " TP ", workload.layout.tensor_parallel, " EP ", workload.layout.expert_parallel, " ESP ",
             workload.layout.expert_sharding_parallel, " ", Name(layer.gate), " k ", layer.top_k, " f ",
             layer.capacity_factor, " aux ", layer.aux_loss_coefficient, " bytes ", layer.bytes_per_element, " shared ",
             layer.shared_hidden_dim, " pieces ", PiecesOf(made.plan.knobs), " hot ", made.hot, " parts");
  for (const int part : made.parts) made.text += StrCat(" ", part);
  return made;
}

// A source batch of a rank in parts.
struct PartedCall {
  PartedCall(const PartsCase& test, int rank, uint64_t seed) : call(test.plan, rank, seed, test.hot), batch(18) {}

  std::span<std::byte> RowsOfPart(Bytes& rows, int first, int tokens) const {
    const size_t row_bytes = rows.size() / 18;
    return std::span(rows).subspan(first * row_bytes, tokens * row_bytes);
  }
  void Forward(TrainingLayer& moe, int tokens) {
    const std::span<std::byte> rows = RowsOfPart(call.there, done, tokens);
    auto pass = moe.Forward(tokens, rows, rows, call.weights, batch);
    MOEPLAN_CHECK(pass.ok());
    firsts.push_back(done);
    passes.push_back(*std::move(pass));
    done += tokens;
    const RouterStatistics one = *passes.back().router_statistics();
    if (statistics.pairs.empty()) {
      statistics = one;
    } else {
      statistics += one;
    }
  }
  void Backward(int part, int tokens, bool in_halves) {
    const std::span<std::byte> rows = RowsOfPart(call.back, firsts[part], tokens);
    if (!in_halves) {
      EXPECT_EQ(passes[part].Backward(rows, rows, &call.gradients, call.gate_gradient), OkStatus());
      return;
    }
    EXPECT_EQ(passes[part].BackwardOfInput(rows, rows, call.gate_gradient), OkStatus());
    halves.push_back(part);
  }
  void AddWeightGradients() {
    for (const int part : halves) EXPECT_EQ(passes[part].AddWeightGradients(&call.gradients), OkStatus());
  }

  Call call;
  BatchInParts batch;
  int done = 0;
  std::vector<int> firsts, halves;
  std::vector<TrainingLayer::Pass> passes;
  RouterStatistics statistics;
};

// Statistics of all ranks, added up.
class StatisticsSum {
 public:
  void Add(const RouterStatistics& one) {
    const std::lock_guard lock(mutex_);
    if (sum_.pairs.empty()) {
      sum_ = one;
    } else {
      sum_ += one;
    }
  }
  const RouterStatistics& sum() const { return sum_; }

 private:
  std::mutex mutex_;
  RouterStatistics sum_;
};

struct PartsFound {
  Gathered first, second;  // Gradients of two source batches.
  StatisticsSum of_parts, of_whole;
};

// The parts of two source batches in turns, forward and then back in a mixed order, some in halves; then once more, on
// the same buffers.
void RunInParts(const PartsCase& test, TrainingLayer& moe, int rank, PartsFound& found) {
  auto& [first, second, of_parts, of_whole] = found;
  const int parts = static_cast<int>(test.parts.size());
  for (int round = 0; round < 2; ++round) {
    PartedCall one(test, rank, 1), two(test, rank, 2);
    for (const int tokens : test.parts) one.Forward(moe, tokens), two.Forward(moe, tokens);
    for (const int i : test.order) {
      (i < parts ? one : two).Backward(i % parts, test.parts[i % parts], /*in_halves=*/i % 3 == round);
    }
    for (const PartedCall* batch : {&one, &two}) {
      const Call& call = batch->call;
      ExpectClose(RowFloatsOf(call.there, call.layer), call.reference.forward.output,
                  call.reference.forward.largest_magnitude, call.layer, "output");
      call.ExpectInputGradient();
      EXPECT_EQ(batch->batch.tokens_left(), 0);
    }
    one.AddWeightGradients(), two.AddWeightGradients();
    Call whole(test.plan, rank, 1, test.hot);
    const RouterStatistics expected = *whole.Forward(moe).router_statistics();
    // Slices of a part are not parts of a slice: their sums over the ranks are alike, not each.
    if (round == 0) of_parts.Add(one.statistics), of_whole.Add(expected);
    first.Add(rank, one.call);
    second.Add(rank, two.call);
  }
}

// Random layers, whole and in parts: how many pairs they dropped in all.
int64_t RunDraws(int draws, bool dropless) {
  std::mt19937_64 random(TestSeed());
  std::map<Family, int> ran;
  int64_t drops = 0;
  for (int i = 0; i < draws && !::testing::Test::HasFailure(); ++i) {
    const PartsCase test = DrawParts(random, dropless);
    SCOPED_TRACE(StrCat("draw ", i, ": ", test.text));
    PartsFound found;
    std::atomic<int> refused = 0;
    OnEveryRank([&](HostRank& host, int rank) {
      const auto moe = TrainingLayer::Make(test.plan, host.runtime());
      if (!moe.ok()) {
        ++refused;
        return;
      }
      RunInParts(test, **moe, rank, found);
    });
    if (refused > 0) continue;
    ++ran[test.plan.knobs.family];
    ExpectUpGradients(found.first, test.plan, 1, test.hot);
    ExpectUpGradients(found.second, test.plan, 2, test.hot);
    const RouterStatistics &parts = found.of_parts.sum(), &whole = found.of_whole.sum();
    EXPECT_EQ(parts.tokens, whole.tokens);
    EXPECT_EQ(parts.pairs, whole.pairs);
    EXPECT_EQ(parts.kept, whole.kept);
    EXPECT_NEAR(parts.entropy_sum, whole.entropy_sum, 1e-6 * whole.entropy_sum);
    EXPECT_NEAR(parts.squared_log_sum_exp_sum, whole.squared_log_sum_exp_sum, 1e-6 * whole.squared_log_sum_exp_sum);
    drops += DroppedPairs(whole);
  }
  EXPECT_EQ(ran.size(), std::size(kFamilies));
  return drops;
}

TEST(TrainingLayerTest, ASourceBatchInPartsIsTheWhole) { EXPECT_GT(RunDraws(60, /*dropless=*/false), 0); }

// ---- Dropless.

TEST(TrainingLayerTest, ADroplessLayerSendsEveryPair) { EXPECT_EQ(RunDraws(240, /*dropless=*/true), 0); }

// One expert gets few of the tokens of a call, then nearly all, then few.
TEST(TrainingLayerTest, ADroplessCallHasTheSlotsThatItNeeds) {
  for (const Family family : kFamilies) {
    SCOPED_TRACE(std::string(Name(family)));
    LayerPlan plan = PlanOf(family);
    plan.workload.layer.capacity_factor = 0;
    Gathered hot;
    OnEveryRank([&](HostRank& host, int rank) {
      const auto moe = TrainingLayer::Make(plan, host.runtime());
      ASSERT_TRUE(moe.ok()) << moe.status().message();
      Call even(plan, rank, 1), one(plan, rank, 2, /*hot=*/3), few(WithTokens(plan, 7), rank, 3, /*hot=*/0);
      TrainingLayer::Pass pass_even = even.Forward(**moe), pass_one = one.Forward(**moe), pass_few = few.Forward(**moe);
      EXPECT_EQ(DroppedPairs(*pass_one.router_statistics()), 0);
      one.Backward(pass_one), few.Backward(pass_few), even.Backward(pass_even);
      hot.Add(rank, one);
    });
    ExpectUpGradients(hot, plan, 2, /*hot=*/3);
  }
}

TEST(TrainingLayerTest, MoreRowsThanADroplessLayerMayReceiveFailOnEveryRank) {
  LayerPlan plan = PlanOf(Family::kParmS2);
  plan.workload.layer.capacity_factor = 0;
  plan.workload.layer.receive_factor = 1.8;  // Of 9 rows for each of 4 experts: 17, rounded up.
  OnEveryRank([&](HostRank& host, int rank) {
    const auto moe = TrainingLayer::Make(plan, host.runtime());
    ASSERT_TRUE(moe.ok()) << moe.status().message();
    // All 18 tokens of the second source batch, which ranks 2 and 3 have, choose one expert.
    Call call(plan, rank, 1, rank < 2 ? -1 : 1);
    const auto refused = (*moe)->Forward(18, call.there, call.there, call.weights);
    EXPECT_EQ(refused.status(),
              InvalidInput("layer.receiveFactor: found 18 rows of rank 2 for one expert, expected at most 17, which is "
                           "1.8 times an even share of 9; raise it, or balance the router"));
    Call even(plan, rank, 1);
    TrainingLayer::Pass pass = even.Forward(**moe);
    even.Backward(pass);
  });
}

TEST(TrainingLayerTest, AnyBoundOnRowsIsANumber) {
  for (const double factor : {1.0, 1e9, 1e300}) {
    SCOPED_TRACE(factor);
    LayerPlan plan = PlanOf(Family::kMontaO1);
    plan.workload.layer.capacity_factor = 0;
    plan.workload.layer.receive_factor = factor;
    OnEveryRank([&](HostRank& host, int rank) {
      const auto moe = TrainingLayer::Make(plan, host.runtime());
      ASSERT_TRUE(moe.ok()) << moe.status().message();
      // One token has two pairs for two of four experts: of 0.5 rows each an even share is one.
      Call one(WithTokens(plan, 1), rank, 1);
      TrainingLayer::Pass pass = one.Forward(**moe);
      one.Backward(pass);
      if (factor == 1) return;
      Call all(plan, rank, 1, /*hot=*/2);
      TrainingLayer::Pass of_all = all.Forward(**moe);
      all.Backward(of_all);
    });
  }
}

TEST(TrainingLayerTest, ADroplessLayerWithoutCountsIsRefused) {
  LayerPlan plan = PlanOf(Family::kParmS2);
  plan.workload.layer.capacity_factor = 0;
  OnEveryRank([&](HostRank& host, int rank) {
    const LayerWeights weights = WeightsOf(plan, rank, 1);
    LayerGradients gradients = ZeroGradients(weights);
    EXPECT_EQ(MoeLayer::Make(plan, host.runtime(), weights, &gradients).status().code(), StatusCode::kUnimplemented);
  });
}

TEST(TrainingLayerTest, WhatCannotComeInPartsIsRefused) {
  const auto refused = [](auto change, auto check) {
    LayerPlan plan = PlanOf(Family::kParmS1);
    change(plan);
    OnEveryRank([&](HostRank& host, int rank) {
      const auto moe = TrainingLayer::Make(plan, host.runtime());
      ASSERT_TRUE(moe.ok()) << moe.status().message();
      Call call(plan, rank, 1);
      check(**moe, call);
    });
  };
  const auto first_part = [](TrainingLayer& moe, Call& call, BatchInParts& batch, int tokens) {
    const std::span<std::byte> rows = std::span(call.there).first(call.there.size() / 18 * std::max(tokens, 0));
    return moe.Forward(tokens, rows, rows, call.weights, batch);
  };
  for (const GateKind gate : {GateKind::kBatchPrioritized, GateKind::kExpertChoice}) {
    refused(
        [&](LayerPlan& plan) {
          plan.workload.layer.gate = gate;
          plan.knobs.family = Family::kParmS2;
        },
        [&](TrainingLayer& moe, Call& call) {
          BatchInParts batch(18);
          EXPECT_EQ(
              first_part(moe, call, batch, 9).status(),
              InvalidInput(StrCat("layer.gate: found ", Name(gate),
                                  ", expected TOP_K, SWITCH, RANDOM or HASH where a source batch comes in parts, ",
                                  "as ", Name(gate), " looks at the whole of it")));
        });
  }
  refused([](LayerPlan& plan) { plan.workload.capacity_passing = CapacityPassing::kPadded; },
          [&](TrainingLayer& moe, Call& call) {
            BatchInParts batch(18);
            EXPECT_EQ(first_part(moe, call, batch, 9).status().message().substr(0, 30),
                      "capacityPassing: found PADDED,");
          });
  refused([](LayerPlan&) {},
          [&](TrainingLayer& moe, Call& call) {
            BatchInParts too_many(19), batch(18);
            EXPECT_EQ(first_part(moe, call, too_many, 9).status().message().substr(0, 35),
                      "tokens: found 19, expected 1 to 18,");
            EXPECT_EQ(first_part(moe, call, batch, 0).status().code(), StatusCode::kInvalidInput);
            auto part = first_part(moe, call, batch, 10);
            ASSERT_TRUE(part.ok()) << part.status().message();
            EXPECT_EQ(
                first_part(moe, call, batch, 9).status(),
                InvalidInput("tokens: found 9 of a part, expected 1 to 8, those of the source batch that have not "
                             "come yet"));
            // The load-balance loss is about pairs that have not come yet.
            const auto rows = std::span(call.back).first(call.back.size() / 18 * 10);
            EXPECT_EQ(part->Backward(rows, rows, &call.gradients, call.gate_gradient).message().substr(0, 42),
                      "tokens: found 10 of the source batch's 18 ");
            const auto rest = first_part(moe, call, batch, 8);
            ASSERT_TRUE(rest.ok());
            EXPECT_EQ(part->Backward(rows, rows, &call.gradients, call.gate_gradient), OkStatus());
          });
}

TEST(TrainingLayerTest, APlanOfAnyPhaseTrains) {
  LayerPlan plan = PlanOf(Family::kMontaO3);
  plan.knobs.chunks = 2;
  const auto resolved = ResolveWorkload(plan.workload, plan.cluster);
  ASSERT_TRUE(resolved.ok());
  const auto graph = BuildPlan({.knobs = plan.knobs}, *resolved, plan.cluster);
  ASSERT_TRUE(graph.ok());
  for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kTraining}) {
    SCOPED_TRACE(static_cast<int>(phase));
    LayerPlan planned = plan;
    planned.workload.phase = phase;
    planned.workload.min_chunk_bytes = 1e9;  // Nobody searches here.
    const TaskRange range = TasksOf(*graph, phase);
    for (TaskId id = range.first; id < range.end; ++id) planned.order.push_back(graph->tasks[id].name);
    OnEveryRank([&](HostRank& host, int rank) {
      const auto moe = TrainingLayer::Make(planned, host.runtime());
      ASSERT_TRUE(moe.ok()) << moe.status().message();
      Call call(plan, rank, 1);
      TrainingLayer::Pass pass = call.Forward(**moe);
      call.Backward(pass);
      std::set<std::string> tasks;
      for (const TaskTiming& timing : pass.LastTimeline(phase)) tasks.insert(timing.task);
      EXPECT_EQ(tasks, std::set<std::string>(planned.order.begin(), planned.order.end()));
    });
  }
}

TEST(TrainingLayerTest, RanksWithOtherPlansAreToldApart) {
  OnEveryRank([&](HostRank& host, int rank) {
    LayerPlan plan = PlanOf(Family::kParmS2);
    if (rank == 2) plan.workload.layer.top_k = 1;
    if (rank == 3) plan.knobs.family = Family::kParmS1;
    EXPECT_EQ(TrainingLayer::Make(plan, host.runtime()).status(),
              InvalidInput("layer.topK: found 1 on rank 2, expected 2, as on rank 0; make the layer from the same plan "
                           "on every rank"));
    // Nor does a rank without a plan leave the others waiting.
    const StatusOr<LayerPlan> none =
        rank == 1 ? StatusOr<LayerPlan>(NotFound("no file")) : StatusOr<LayerPlan>(PlanOf(Family::kParmS2));
    const Status told = TrainingLayer::Make(none, host.runtime()).status();
    EXPECT_EQ(told, rank == 1
                        ? NotFound("no file")
                        : InvalidInput("plan: found none on rank 1 (no file), expected the same plan on every rank"));
    // And the job goes on.
    const auto moe = TrainingLayer::Make(PlanOf(Family::kParmS2), host.runtime());
    ASSERT_TRUE(moe.ok());
    Call call(PlanOf(Family::kParmS2), rank, 1);
    TrainingLayer::Pass pass = call.Forward(**moe);
    call.Backward(pass);
  });
}

TEST(TrainingLayerTest, WrongCallsAreRefused) {
  const LayerPlan plan = PlanOf(Family::kParmS1);
  OnEveryRank([&](HostRank& host, int rank) {
    const auto moe = TrainingLayer::Make(plan, host.runtime());
    ASSERT_TRUE(moe.ok());
    Call call(plan, rank, 1);
    const auto refused = [&](int tokens, size_t bytes) {
      return (*moe)->Forward(tokens, std::span(call.there).first(bytes), call.there, call.weights).status().message();
    };
    EXPECT_EQ(refused(19, 0),
              "tokens: found 19, expected 1 to 18, the layer's batch · sequenceLength / contextParallel");
    EXPECT_EQ(refused(18, 4).substr(0, 36), "input: found 4 bytes, expected 864: ");
    TrainingLayer::Pass pass = call.Forward(**moe);
    EXPECT_EQ(pass.Backward(call.back, call.back, &call.gradients, {}).code(), StatusCode::kInvalidInput);
    LayerGradients other = call.gradients;
    other.experts.up.pop_back();
    Call next(plan, rank, 2);
    TrainingLayer::Pass next_pass = next.Forward(**moe);
    EXPECT_EQ(next_pass.Backward(next.back, next.back, &other, next.gate_gradient).message().substr(0, 21),
              "gradients.experts.up:");
    next.Backward(next_pass);  // Nothing was lost.
  });
}

}  // namespace
}  // namespace moeplan::executor
