#include "planner/lancet/model_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "models/plan/part_shares.h"
#include "planner/lancet/cut_ranges.h"
#include "planner/lancet/graph_layout.h"
#include "planner/lancet/timed_graph.h"
#include "planner/rules/lancet.h"
#include "tests/planner/find_instruction.h"

namespace moeplan::planner {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// A second for each flop, thousandth for each byte copied, and so on, so that sizes can be read off the times.
Profile UnitProfile() {
  Profile profile = {.cluster = {.nodes = 2, .gpus_per_node = 2}};
  const auto line = [](double per_unit) { return MakeCostModel(AlphaBeta{0, per_unit}); };
  profile.collectives = {{{.collective = Collective::kAllToAll, .group = {4, 2}}, line(1e-6)}};
  profile.kernels = {{{.kernel = Kernel::kExpertGemm}, line(1e-9)},
                     {{.kernel = Kernel::kDeviceCopy}, line(1e-7)},
                     {{.kernel = Kernel::kGate}, line(1e-5)},
                     {{.kernel = Kernel::kPermute}, line(1e-4)}};
  return profile;
}

// Two layers, the second of 4 experts; M 8, H 16 (experts 12), 2 heads of 4.
ModelConfig SmallModel() {
  return {.moe_layer = {false, true},
          .model_dim = 8,
          .dense_hidden_dim = 16,
          .heads = 2,
          .kv_heads = 2,
          .head_dim = 4,
          .experts = 4,
          .top_k = 2,
          .expert_hidden_dim = 12,
          .vocab = 100};
}

const ModelGraphOptions kOptions = {
    .batch = 3, .sequence_length = 10, .expert_parallel = 4, .ranks_per_node = 2, .capacity_factor = 1.5};

TrainingGraph GraphOf(const ModelConfig& model, const ModelGraphOptions& options = kOptions) {
  PriceNotes notes;
  const auto graph = TrainingGraphOf(model, options, UnitProfile(), notes);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return graph.ok() ? *graph : TrainingGraph();
}

// The batch has as many tokens in more samples, for more parts.
ModelGraphOptions WithManySamples() {
  ModelGraphOptions options = kOptions;
  options.batch = 10, options.sequence_length = 3;
  return options;
}

TEST(ModelGraphTest, InstructionsTakeTheTimeOfTheirWork) {
  const TrainingGraph graph = GraphOf(SmallModel(), WithManySamples());
  const double tokens = 30, x_bytes = tokens * 8 * 2, slot_bytes = 2 * 1.5 * x_bytes;
  EXPECT_NEAR(*Find(graph, "layer0.qkv").time_s, 1e-9 * 2 * tokens * 8 * 24, 1e-15);
  // As many flops as without the mask, which is how layouts count them (models/step/layer_work.h).
  EXPECT_NEAR(*Find(graph, "layer0.attention").time_s, 1e-9 * 2 * (tokens * 3) * 2 * 8, 1e-15);
  EXPECT_NEAR(*Find(graph, "layer0.rotary").time_s, 1e-7 * tokens * 2 * 2 * 4 * 2, 1e-15);
  EXPECT_NEAR(*Find(graph, "layer0.out").time_s, 1e-9 * 2 * tokens * 64, 1e-15);
  EXPECT_NEAR(*Find(graph, "layer0.up").time_s, 1e-9 * 2 * tokens * 8 * 16, 1e-15);
  EXPECT_NEAR(*Find(graph, "layer0.norm1").time_s, 1e-7 * x_bytes, 1e-15);
  EXPECT_NEAR(*Find(graph, "layer0.add1").time_s, 1e-7 * 1.5 * x_bytes, 1e-15);
  EXPECT_NEAR(*Find(graph, "layer1.gate").time_s, 1e-5 * x_bytes, 1e-12);
  EXPECT_NEAR(*Find(graph, "layer1.dispatch").time_s, 1e-4 * slot_bytes, 1e-12);
  EXPECT_NEAR(*Find(graph, "layer1.all_to_all1").time_s, 1e-6 * slot_bytes, 1e-12);
  EXPECT_NEAR(*Find(graph, "layer1.experts").time_s, 1e-9 * 2 * 3 * tokens * (2 * 8 * 12), 1e-15);
  EXPECT_NEAR(*Find(graph, "head").time_s, 1e-9 * 2 * tokens * 800, 1e-15);
  EXPECT_EQ(Find(graph, "layer1.all_to_all1").bytes, slot_bytes);
  EXPECT_EQ(Find(graph, "layer1.all_to_all1").group_size, 4);
  EXPECT_EQ(Find(graph, "layer1.all_to_all1").ranks_per_node, 2);
  // Curves through the origin: a fourth of the work takes a fourth of the time, and of rows what the busiest rank has.
  EXPECT_NEAR(Find(graph, "layer1.dispatch").part_times_s[3], *Find(graph, "layer1.dispatch").time_s / 4, 1e-12);
  const double busiest = PartRows(*graph.workload).ShareOfWhole(4);
  EXPECT_NE(busiest, 0.25);
  for (const std::string id : {"layer1.all_to_all1", "layer1.experts", "layer1.all_to_all2"}) {
    EXPECT_NEAR(Find(graph, id).part_times_s[3], *Find(graph, id).time_s * busiest, 1e-12) << id;
  }
  EXPECT_EQ(Find(graph, "layer1.experts").part_times_s.size(), 8u);
}

// Experts of 1 s and 0.05 s for each part, exchanges of 0.4 s, and next to nothing else.
TEST(ModelGraphTest, TheBusiestRankDecidesTheNumberOfParts) {
  ModelGraphOptions options = kOptions;
  options.batch = 20, options.sequence_length = 1, options.capacity_factor = 1;
  const double slot_bytes = 2 * 20 * 8 * 2, flops = 2 * 2 * 20 * (2 * 8 * 12), launch_s = 0.05;
  Profile profile = UnitProfile();
  profile.collectives[0].model = MakeCostModel(AlphaBeta{0, 0.4 / slot_bytes});
  for (KernelModel& entry : profile.kernels) {
    const bool product = entry.key.kernel == Kernel::kExpertGemm;
    entry.model = MakeCostModel(product ? AlphaBeta{launch_s, 1 / flops} : AlphaBeta{0, 1e-12});
  }
  PriceNotes notes;
  TrainingGraph graph = *TrainingGraphOf(SmallModel(), options, profile, notes);
  for (Instruction& one : graph.instructions) {
    const bool in_layer =
        one.phase == Pass::kForward &&
        (one.op == InstructionOp::kGate || one.op == InstructionOp::kDispatch || one.op == InstructionOp::kAllToAll ||
         one.op == InstructionOp::kExpert || one.op == InstructionOp::kCombine);
    if (in_layer) one.layer = "moe";  // Cut along samples.
    if (one.op != InstructionOp::kExpert && !CollectiveOf(one.op)) one.time_s = 0, one.part_times_s.clear();
  }
  TrainingGraph even = graph;
  for (Instruction& one : even.instructions) {
    for (size_t k = 2; k <= one.part_times_s.size(); ++k) {
      one.part_times_s[k - 1] = PartShares(graph).EvenS(one, static_cast<int>(k)).value_or(one.part_times_s[k - 1]);
    }
  }
  const auto parts_of = [](const TrainingGraph& planned) {
    const auto answer = PlanGraph(planned, nullptr, {.passes = {.weight_gradients = false}});
    EXPECT_TRUE(answer.ok() && answer->lancet.partitions.size() == 1);
    return answer->lancet.partitions.front().parts;
  };
  // Experts wait for one part, and the last part goes back behind them: 2·0.4·share + k·(0.05 + share).
  const auto best = [&](const std::function<double(int)>& share) {
    std::vector<double> time_s;
    for (int k = 2; k <= 8; ++k) time_s.push_back(2 * 0.4 * share(k) + k * (launch_s + share(k)));
    return static_cast<int>(std::ranges::min_element(time_s) - time_s.begin()) + 2;
  };
  const PartRows rows(*graph.workload);
  // 0.8/k + 0.05·k + 1 is least for 4; of three parts the busiest rank has 1.12 of an even share, of four 1.15.
  EXPECT_EQ(best([](int k) { return 1.0 / k; }), 4);
  EXPECT_EQ(best([&](int k) { return rows.ShareOfWhole(k); }), 3);
  EXPECT_EQ(parts_of(even), 4);
  EXPECT_EQ(parts_of(graph), 3);
}

TEST(ModelGraphTest, RangesHaveNoMorePartsThanTheMicroBatchHasSamples) {
  ModelGraphOptions options = kOptions;
  for (const int samples : {1, 3, 8, 9}) {
    options.batch = samples;
    const TrainingGraph graph = GraphOf(SmallModel(), options);
    EXPECT_EQ(graph.max_parts, std::min(samples, 8));
    EXPECT_EQ(static_cast<int>(Find(graph, "layer0.qkv").part_times_s.size()), std::min(samples, 8));
  }
}

// A factor of 1, and one that says how many rows the busiest rank has, stand for layers that drop nothing.
TEST(ModelGraphTest, LayoutsWithoutACapacityDropNothing) {
  StepQuestion question;
  question.request = {.model = SmallModel(), .gpus = 4, .sequence_length = 10};
  question.layout.expert_parallel = 4;
  question.micro_batch = 3;
  const auto graph_of = [&](double factor, bool dropless) {
    question.request.capacity_factor = factor;
    question.request.dropless = dropless;
    ModelGraphOptions options = *GraphOptionsOf(question);
    options.ranks_per_node = 2;
    return GraphOf(SmallModel(), options);
  };
  for (const auto& [factor, dropless] : {std::pair{1.0, false}, {1.0, true}, {1.3, true}}) {
    const TrainingGraph graph = graph_of(factor, dropless);
    EXPECT_EQ(graph.workload->layer.capacity_factor, 0);
    const Instruction& exchange = Find(graph, "layer1.all_to_all1");
    EXPECT_NEAR(*exchange.time_s, 1e-6 * factor * 2 * 30 * 8 * 2, 1e-12);
    const PartRows rows(*graph.workload);
    EXPECT_NEAR(exchange.part_times_s[1], *exchange.time_s / 2 * rows.BusiestRatio(2) / rows.BusiestRatio(1), 1e-12);
  }
  EXPECT_EQ(graph_of(1.3, false).workload->layer.capacity_factor, 1.3);
}

// Experts that are cut by themselves are cut along the capacity, in slots, of which parts have as many.
TEST(ModelGraphTest, PartsOfSlotsAreEven) {
  const TrainingGraph graph = GraphOf(SmallModel(), WithManySamples());
  PriceNotes notes;
  const TimedGraph timed = *TimeGraph(graph, nullptr, notes);
  for (size_t i = 0; i < graph.instructions.size(); ++i) {
    const Instruction& one = graph.instructions[i];
    if (one.phase != Pass::kForward || (one.op != InstructionOp::kAllToAll && one.op != InstructionOp::kExpert))
      continue;
    EXPECT_NEAR(timed.instructions[i].PartS(4, CutAxis::kCapacity), *one.time_s / 4, 1e-12);
    EXPECT_EQ(timed.instructions[i].PartS(4, CutAxis::kSamples), one.part_times_s[3]);
    // Alone, from its start to its last end: four parts, one after another.
    const int place = static_cast<int>(i);
    EXPECT_NEAR(RangeS(timed, place, place, 4), *one.time_s, 1e-12);
  }
}

// One model of attention for layouts, steps and graphs: what was measured of linear layers and attention is what an
// instruction takes.
TEST(ModelGraphTest, LinearLayersAndAttentionAreAsMeasured) {
  Profile profile = UnitProfile();
  const double tokens = 30, product = 2 * tokens * 8 * 24;
  const KernelShape linear = {.in_features = 8, .out_features = 24, .experts = 1};
  const KernelShape scores = {.heads = 2, .kv_heads = 2, .query_key_dim = 4, .value_dim = 4, .sequence = 10};
  const double flops = 3 * AttentionFlops(scores);
  const auto add = [&](Kernel kernel, const KernelShape& shape, double size, double time_s) {
    profile.kernels.push_back({{.kernel = kernel, .bytes_per_element = 2, .shape = shape},
                               MakeCostModel(LogLog{{{size / 2, time_s / 2}, {size, time_s}}})});
  };
  add(Kernel::kLinear, linear, product, 5e-3);
  add(Kernel::kAttention, scores, flops, 6e-3);
  add(Kernel::kAttentionGradient, scores, flops, 7e-3);
  PriceNotes notes;
  const auto graph = TrainingGraphOf(SmallModel(), kOptions, profile, notes);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_NEAR(*Find(*graph, "layer0.qkv").time_s, 5e-3, 1e-12);
  EXPECT_NEAR(*Find(*graph, "layer0.attention").time_s, 6e-3, 1e-12);
  EXPECT_NEAR(*Find(*graph, "layer0.attention.dx").time_s, 7e-3, 1e-12);
}

TEST(ModelGraphTest, TheWayBackHasAGradientOfInputsAndOneOfWeights) {
  const TrainingGraph graph = GraphOf(SmallModel());
  const Instruction& weights = Find(graph, "layer1.experts.dw");
  EXPECT_TRUE(weights.weight_gradient);
  EXPECT_EQ(weights.phase, Pass::kBackward);
  EXPECT_EQ(weights.time_s, Find(graph, "layer1.experts").time_s);
  EXPECT_THAT(weights.inputs, Contains("layer1.all_to_all1.y"));
  EXPECT_THAT(weights.inputs, Contains("d(layer1.experts.y).layer1.all_to_all2"));
  EXPECT_NEAR(*Find(graph, "layer0.attention.dx").time_s, 2 * *Find(graph, "layer0.attention").time_s, 1e-15);
  // What is read twice gets two gradients: the sum behind attention feeds the norm and the next sum.
  const Instruction& add = Find(graph, "layer0.add1.dx");
  EXPECT_THAT(add.inputs, Contains("d(layer0.add1.y).layer0.norm2"));
  EXPECT_THAT(add.inputs, Contains("d(layer0.add1.y).layer0.add2"));
  // Matrices: qkv and out twice, up and down, gate, experts, head, embedding.
  EXPECT_EQ(std::ranges::count(graph.instructions, true, &Instruction::weight_gradient), 10);
  const auto exchanges = [&](Pass pass) {
    return std::ranges::count_if(graph.instructions, [&](const Instruction& one) {
      return one.op == InstructionOp::kAllToAll && one.phase == pass;
    });
  };
  EXPECT_EQ(exchanges(Pass::kForward), 2);
  EXPECT_EQ(exchanges(Pass::kBackward), 2);
}

// Behind everything else: dense gradients are summed, the optimizer reads those and the experts' own, and weights are
// gathered.
TEST(ModelGraphTest, AStepEndsWithItsOptimizer) {
  const TrainingGraph graph = GraphOf(SmallModel());
  const Instruction& sum = Find(graph, "gradients.1");
  EXPECT_EQ(sum.op, InstructionOp::kReduceScatter);
  // qkv and out twice, up and down, the gate, head and embedding; experts are no two ranks'.
  EXPECT_EQ(sum.bytes, 4.0 * (2 * (8 * 24 + 64) + 2 * 8 * 16 + 8 * 4 + 2 * 800));
  EXPECT_EQ(sum.group_size, 4);
  EXPECT_THAT(sum.inputs, Contains("d(embedding.w)"));
  const Instruction& optimizer = Find(graph, "optimizer");
  EXPECT_THAT(optimizer.inputs, Contains("gradients.1.y"));
  EXPECT_THAT(optimizer.inputs, Contains("d(layer1.experts.w)"));
  EXPECT_EQ(graph.instructions.back().id, "weights");
  EXPECT_EQ(graph.instructions.back().op, InstructionOp::kAllGather);

  ModelGraphOptions whole = kOptions;
  whole.zero_stage = 0;
  whole.gpus = 8;
  whole.gpus_per_node = 2;
  const TrainingGraph summed = GraphOf(SmallModel(), whole);
  EXPECT_EQ(summed.instructions.back().id, "optimizer");
  EXPECT_EQ(Find(summed, "gradients.1").op, InstructionOp::kAllReduce);
  EXPECT_EQ(Find(summed, "gradients.1").group_size, 8);
  // Two ranks on different nodes have the same experts.
  const Instruction& of_experts = Find(summed, "expert_gradients.1");
  EXPECT_EQ(of_experts.group_size, 2);
  EXPECT_EQ(of_experts.ranks_per_node, 1);
  EXPECT_EQ(of_experts.bytes, 4.0 * 2 * 8 * 12);
  EXPECT_THAT(of_experts.inputs, Contains("d(layer1.experts.w)"));
}

// What runs where the graph is run: kernels by their keys, sizes of what is put together, counts.
TEST(ModelGraphTest, InstructionsSayWhatTheyConsistOf) {
  const TrainingGraph graph = GraphOf(SmallModel());
  const Instruction& experts = Find(graph, "layer1.experts");
  ASSERT_EQ(experts.work.size(), 1u);
  EXPECT_EQ(std::get<KernelKey>(experts.work[0].key).kernel, Kernel::kExpertGemm);
  EXPECT_NEAR(experts.work[0].size, 2 * 3 * 30.0 * (2 * 8 * 12), 1e-9);
  const Instruction& qkv = Find(graph, "layer0.qkv.dw");
  ASSERT_EQ(qkv.work.size(), 1u);
  EXPECT_EQ(std::get<KernelKey>(qkv.work[0].key).kernel, Kernel::kLinearWeightGradient);
  EXPECT_NEAR(qkv.work[0].size, 2 * 30.0 * 8 * 24, 1e-9);
  EXPECT_EQ(Find(graph, "layer0.up").output_bytes, std::vector<double>{30 * 16 * 2});
  EXPECT_EQ(Find(graph, "layer1.all_to_all1").counts_bytes, 4 * 4);
  ASSERT_TRUE(graph.workload.has_value());
  EXPECT_EQ(graph.workload->layer.experts, 4);
}

TEST(ModelGraphTest, GroupsAndRangesAreFreeUnlessAskedFor) {
  const TrainingGraph free = GraphOf(SmallModel());
  EXPECT_EQ(free.group_s, 0);
  EXPECT_EQ(free.max_range_s, 0);
  ModelGraphOptions options = kOptions;
  options.limits = {.group_s = 0.25, .max_range_s = 2};
  PriceNotes notes;
  const TrainingGraph limited = *TrainingGraphOf(SmallModel(), options, UnitProfile(), notes);
  EXPECT_EQ(limited.group_s, 0.25);
  EXPECT_EQ(limited.max_range_s, 2);
}

TEST(ModelGraphTest, GroupsAndRangesMayBeThoseOfThePaper) {
  ModelGraphOptions options = kOptions;
  options.paper_limits = true;
  PriceNotes notes;
  const TrainingGraph graph = *TrainingGraphOf(SmallModel(), options, UnitProfile(), notes);
  double forward_s = 0;
  for (const Instruction& one : graph.instructions) forward_s += one.phase == Pass::kForward ? *one.time_s : 0;
  EXPECT_NEAR(graph.max_range_s, forward_s, 1e-12);  // One MoE layer.
  EXPECT_NEAR(graph.group_s, forward_s / 5, 1e-12);
}

TEST(ModelGraphTest, SharedExpertsRunWhileTokensAreOnTheirWay) {
  ModelConfig model = SmallModel();
  model.shared_hidden_dim = 20;
  model.gated_mlp = true;
  const TrainingGraph graph = GraphOf(model);
  const auto place = [&](const std::string& id) { return &Find(graph, id) - graph.instructions.data(); };
  EXPECT_LT(place("layer1.all_to_all1"), place("layer1.shared_up"));
  EXPECT_LT(place("layer1.shared_down"), place("layer1.experts"));
  EXPECT_NEAR(*Find(graph, "layer1.shared_up").time_s, 1e-9 * 2 * 30 * 2 * 8 * 20, 1e-15);
  EXPECT_THAT(Find(graph, "layer1.add2").inputs, Contains("layer1.shared_down.y"));
}

TEST(ModelGraphTest, DecodersAttendToTheEncoder) {
  ModelConfig model = SmallModel();
  model.encoder_layers = 1;  // The other one is the decoder's.
  const TrainingGraph graph = GraphOf(model);
  EXPECT_THAT(Find(graph, "layer1.cross_kv").inputs, Contains("encoder_norm.y"));
  EXPECT_THAT(Find(graph, "encoder_norm.dx").inputs, Contains("d(encoder_norm.y).layer1.cross_kv"));
  // Whole, where a causal one would take half.
  EXPECT_NEAR(*Find(graph, "layer0.attention").time_s, 2 * *Find(graph, "layer1.attention").time_s, 1e-15);
}

TEST(ModelGraphTest, WhatTheProfileLacksIsNamed) {
  Profile profile = UnitProfile();
  profile.collectives.clear();
  PriceNotes notes;
  EXPECT_THAT(TrainingGraphOf(SmallModel(), kOptions, profile, notes).status().message(),
              HasSubstr("the profile lacks ALL_TO_ALL groupSize 4 ranksPerNode 2"));
  profile = UnitProfile();
  profile.kernels.pop_back();
  ASSERT_TRUE(TrainingGraphOf(SmallModel(), kOptions, profile, notes).ok());
  EXPECT_THAT(notes.Warnings(), Contains(HasSubstr("PERMUTE")));
}

TEST(ModelGraphTest, WrongOptionsAreRefused) {
  const auto refusal = [](auto change) {
    ModelConfig model = SmallModel();
    ModelGraphOptions options = kOptions;
    change(model, options);
    PriceNotes notes;
    const auto graph = TrainingGraphOf(model, options, UnitProfile(), notes);
    return graph.ok() ? std::string() : graph.status().message();
  };
  EXPECT_EQ(refusal([](auto&, auto&) {}), "");
  EXPECT_EQ(refusal([](auto&, auto& o) { o.batch = 0; }), "batch: found 0, expected a whole number of 1 to 16777216");
  EXPECT_EQ(refusal([](auto&, auto& o) { o.limits.group_s = -1; }),
            "group: found -1, expected a finite number of seconds, at least 0");
  EXPECT_THAT(refusal([](auto&, auto& o) { o.limits.max_range_s = 1.0 / 0.0; }), HasSubstr("max range: found inf"));
  EXPECT_EQ(refusal([](auto&, auto& o) { o.limits.max_range_s = 1, o.paper_limits = true; }),
            "paper limits: found others beside them, expected those of the paper or one's own");
  EXPECT_EQ(refusal([](auto&, auto& o) { o.expert_parallel = 3; }),
            "expert parallel: found 3, expected a divisor of the 4 experts");
  EXPECT_EQ(refusal([](auto&, auto& o) { o.ranks_per_node = 5; }),
            "ranks per node: found 5, expected a whole number of 1 to 4");
  EXPECT_EQ(refusal([](auto&, auto& o) { o.ranks_per_node = 3; }),
            "ranks per node: found 3, expected a divisor of expert parallel 4: as many ranks on each node");
  EXPECT_EQ(refusal([](auto&, auto& o) { o.capacity_factor = 0; }),
            "capacity factor: found 0, expected a finite number above 0");
  EXPECT_EQ(refusal([](auto&, auto& o) { o.bytes_per_element = 3; }), "bytes per element: found 3, expected 2 or 4");
  EXPECT_EQ(refusal([](auto&, auto& o) { o.gate = GateKind::kSwitch; }),
            "gate: found SWITCH, expected another, because the model chooses 2 experts for a token");
  EXPECT_THAT(refusal([](auto& m, auto&) { m.moe_layer = {false}; }), HasSubstr("no layer of experts"));
  EXPECT_THAT(refusal([](auto&, auto& o) { o.batch = o.sequence_length = 1 << 20; }), HasSubstr("tokens"));
}

}  // namespace
}  // namespace moeplan::planner
