#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "models/memory/weights.h"
#include "planner/layout/cost_book.h"
#include "planner/layout/layout_rules.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/moe_plans.h"
#include "planner/layout/rank_layouts.h"
#include "planner/layout/rank_memory.h"
#include "planner/layout/stages.h"
#include "planner/layout/step_time.h"
#include "tests/planner/by_hand.h"
#include "tests/planner/small_layouts.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

LayoutPoint PointOf(const LayoutRequest& request, const Layout& layout, int micro_batch = 1) {
  return {.layout = layout,
          .micro_batch = micro_batch,
          .micro_batches = request.global_batch / layout.data_parallel / micro_batch};
}

// ---- Stages and flops.

TEST(StagesTest, LayersAreDealtInRunsAndTheEndsReadTheVocabulary) {
  const ModelConfig model = SmallModel();
  const std::vector<Stage> stages = StagesOf({.model = model}, 2);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0], (Stage{.index = 0, .layers = 2, .moe_layers = 0, .embeds = true, .predicts = false}));
  EXPECT_EQ(stages[1], (Stage{.index = 1, .layers = 2, .moe_layers = 2, .embeds = false, .predicts = true}));
  EXPECT_EQ(StageDenseParameters(model, stages[0]), 2 * kAttention + 2 * kDense + kVocabulary);
  EXPECT_EQ(StageDenseParameters(model, stages[1]), 2 * kAttention + 2 * kRouter + kVocabulary);
  EXPECT_EQ(StageExpertParameters(model, stages[1]), 2 * 8 * kExpert);
}

TEST(StagesTest, OneStageHoldsAllParametersOfTheModel) {
  for (const bool tied : {false, true}) {
    ModelConfig model = SmallModel();
    model.tied_embeddings = tied;
    const Stage all = StagesOf({.model = model}, 1).front();
    EXPECT_EQ(StageDenseParameters(model, all), TotalDenseParameters(model));
    EXPECT_EQ(StageExpertParameters(model, all), TotalExpertParameters(model));
  }
}

TEST(StagesTest, FlopsOfATokenAreTwiceWhatItVisitsAndItsScores) {
  const double visited = 4 * kAttention + 2 * kDense + 2 * (2 * kExpert + kRouter) + kVocabulary;
  const double scores = 4.0 * 64 * (32 + 32);  // Each layer: 64 keys, products of 4 · 8 with the key, then the value.
  EXPECT_EQ(ModelFlopsPerToken(SmallModel(), 64), 2 * visited + 2 * scores);
}

TEST(MfuTest, ByHand) {
  // 16 · 64 tokens, thrice the forward flops, 8 GPUs of 1e12 flop/s for 2 s.
  const LayoutRequest request = SmallRequest();
  const double flops = 3 * ModelFlopsPerToken(request.model, 64) * 16 * 64;
  EXPECT_DOUBLE_EQ(ModelFlopsUtilisation(request, 2, 1e12), flops / (2 * 8 * 1e12));
  EXPECT_EQ(ModelFlopsUtilisation(request, 2, 0), 0);
}

// ---- The space.

// TP, EP, ESP, CP, PP, DP, micro-batch, horizontal.
using Degrees = std::tuple<int, int, int, int, int, int, int, bool>;

// Every combination of every number, kept where the contract's layout rules and those of layout_space.h hold.
std::set<Degrees> EveryCombination(const LayoutRequest& request, const Cluster& cluster) {
  std::set<Degrees> found;
  const ModelConfig& model = request.model;
  const int gpus = request.gpus, node = cluster.gpus_per_node;
  for (int tp = 1; tp <= node; ++tp)
    for (int pp = 1; pp <= gpus; ++pp)
      for (int cp = 1; tp * pp * cp <= gpus; ++cp)
        for (int ep = 1; ep <= model.experts; ++ep)
          for (int esp = 1; esp <= node; ++esp) {
            Workload workload;
            workload.layer = {.batch = 1,
                              .sequence_length = request.sequence_length,
                              .model_dim = model.model_dim,
                              .hidden_dim = model.expert_hidden_dim,
                              .experts = model.experts,
                              .top_k = model.top_k,
                              .capacity_factor = 1};
            workload.layout = {tp, ep, esp, cp, pp, 0};
            const auto resolved = ResolveWorkload(workload, cluster);
            if (!resolved.ok() || node % tp != 0 || node % esp != 0) continue;
            const int dp = resolved->layout.data_parallel, rest = request.sequence_length / cp;
            const bool divides = pp <= model.layers() && model.heads % tp == 0 && model.model_dim % tp == 0 &&
                                 model.dense_hidden_dim % tp == 0 && model.expert_hidden_dim % esp == 0 &&
                                 (cp == 1 || rest % 2 == 0) && rest % tp == 0 && request.global_batch % dp == 0;
            if (!divides) continue;
            // [TP, EP beside TP, CP, the rest], where that is another order than [TP, CP, DP].
            const bool across = cp > 1 && ep > 1 && ep * esp > tp && ep * esp % tp == 0 && dp % (ep * esp / tp) == 0;
            for (int micro = 1; micro <= 64; micro *= 2) {
              if (request.global_batch / dp % micro != 0) continue;
              found.insert({tp, ep, esp, cp, pp, dp, micro, false});
              if (across) found.insert({tp, ep, esp, cp, pp, dp, micro, true});
            }
          }
  return found;
}

TEST(LayoutSpaceTest, HoldsEveryLegalCombinationOnce) {
  for (const auto& [nodes, node, batch, sequence] :
       {std::tuple(2, 4, 16, 64), std::tuple(1, 8, 12, 48), std::tuple(3, 2, 18, 32), std::tuple(4, 4, 8, 16)}) {
    LayoutRequest request = SmallRequest();
    request.gpus = nodes * node;
    request.global_batch = batch;
    request.sequence_length = sequence;
    const Cluster cluster = {.nodes = nodes, .gpus_per_node = node};
    std::set<Degrees> found;
    const std::vector<LayoutPoint> points = AllLayoutPoints(request, cluster);
    for (const LayoutPoint& point : points) {
      const Layout& l = point.layout;
      EXPECT_EQ(point.micro_batches * point.micro_batch * l.data_parallel, batch);
      found.insert({l.tensor_parallel, l.expert_parallel, l.expert_sharding_parallel, l.context_parallel,
                    l.pipeline_parallel, l.data_parallel, point.micro_batch, point.horizontal_contexts});
    }
    EXPECT_EQ(found.size(), points.size());
    EXPECT_EQ(found, EveryCombination(request, cluster));
  }
}

const LayoutPoint* Find(const std::vector<LayoutPoint>& points, const Layout& layout, bool across) {
  const auto found = std::ranges::find_if(
      points, [&](const LayoutPoint& point) { return point.layout == layout && point.horizontal_contexts == across; });
  return found == points.end() ? nullptr : &*found;
}

TEST(LayoutSpaceTest, ContextsLieAcrossTheExpertsAndAlongThem) {
  LayoutRequest request = SmallRequest();
  request.gpus = 32;
  request.global_batch = 32;
  const Cluster cluster = {.nodes = 8, .gpus_per_node = 4};
  const Layout across = {4, 4, 4, 2, 1, 4}, along = {4, 2, 4, 4, 1, 2};
  std::vector<LayoutPoint> points = AllLayoutPoints(request, cluster);
  for (const Layout& layout : {across, along}) {
    ASSERT_TRUE(Find(points, layout, true) && Find(points, layout, false));
    EXPECT_EQ(Find(points, layout, true)->network_scale, 8);
    EXPECT_EQ(Find(points, layout, false)->network_scale, 4);
  }
  EXPECT_TRUE(RuleLiesAcross(across));  // cp 2 < ep 4.
  EXPECT_FALSE(RuleLiesAcross(along));  // cp 4 >= ep 2.
  EXPECT_TRUE(planner::PointOf(request, cluster, across, 1)->horizontal_contexts);
  EXPECT_FALSE(planner::PointOf(request, cluster, along, 1)->horizontal_contexts);
  // A network that joins 7 ranks has no room for 8.
  request.max_network_scale = 7;
  points = AllLayoutPoints(request, cluster);
  EXPECT_TRUE(Find(points, across, false) && !Find(points, across, true));
  EXPECT_FALSE(planner::PointOf(request, cluster, across, 1)->horizontal_contexts);
  // Training frameworks have one orientation.
  request.max_network_scale = 0;
  request.as_frameworks = true;
  for (const LayoutPoint& point : AllLayoutPoints(request, cluster)) ASSERT_FALSE(point.horizontal_contexts);
}

TEST(LayoutSpaceTest, GroupsLieWhereTheOrderOfTheRanksPutsThem) {
  LayoutPoint point = {.layout = {2, 4, 1, 2, 2, 4}};  // 16 ranks a stage, in nodes of 8.
  // [TP 2, CP 2, DP 4]: contexts 2 apart; dense replicas are the 8 ranks that are 2 apart; experts' 4 are 4 apart.
  EXPECT_EQ(ContextGroup(point, 8), (GroupShape{2, 2}));
  EXPECT_EQ(DenseReplicas(point, 8), (GroupShape{8, 4}));
  EXPECT_EQ(ExpertReplicas(point, 8), (GroupShape{4, 2}));
  EXPECT_EQ(NeighbourStages(point, 8), (GroupShape{2, 1}));
  EXPECT_EQ(NeighbourStages(point, 32), (GroupShape{2, 2}));
  // [TP 2, 2 of DP in EP, CP 2, ...]: contexts 4 apart, no two in a node of 4.
  point.horizontal_contexts = true;
  EXPECT_EQ(ContextGroup(point, 4), (GroupShape{2, 1}));
  EXPECT_EQ(ContextGroup(point, 8), (GroupShape{2, 2}));
  EXPECT_EQ(ContextStride(point), 4);
}

// ---- Memory.

double MemoryBytes(const LayoutRequest& request, const LayoutPoint& point, const MoeMemory& moe) {
  return RankMemoryOf(request, point, moe).total_bytes();
}

TEST(RankMemoryTest, ByHand) {
  // TP 2, EP 4, PP 2, DP 2 on 8 ranks: 4 a stage; ESP 1, so experts have no replica.
  LayoutRequest request = SmallRequest();
  request.zero_stage = 1;
  const LayoutPoint point = PointOf(request, {2, 4, 1, 1, 2, 2}, /*micro_batch=*/2);  // m = 4.
  const double tokens = 128;
  // Queries, keys, values and outputs have 96 elements, of which a rank has half; each head and row keeps an FP32
  // number.
  const double attention = tokens * (2 * 2.0 * 32 / 2 + 2.0 * 96 / 2 + 4.0 * 4 / 2);
  const double spare_attention = 2.0 * (32 * 64 + 32 * 32) / 2;
  // Last stage: 2 MoE layers, 1 micro-batch; 2.5 rows a token; logits; buffers beyond what one layer keeps.
  const MoeMemory moe = {.buffer_bytes = 1e6, .copies = 2.5};
  const double router = tokens * 8 * (4 + 4 + 1 + 4) / 2;
  const double experts = tokens * (2 * 2.0 * 32 + 2.5 * (2.0 * 32 + 2 * 2.0 * 48)) / 2 + router;
  const double shared = (2 * kAttention + 2 * kRouter + kVocabulary) / 2, own = 2 * 8 * kExpert / 4;
  // Half of 100 logits and of the weight; half of two rows, a whole one and its gradient, and half of that.
  const double head = 2 * (tokens * (100 / 2 + 2.5 * 32 + 32) - tokens * 32 + tokens * 32 + 100 * 32 / 2);
  const RankMemory last = {.weight_bytes = 2 * (shared + own),
                           .gradient_bytes = 4 * (shared + own),
                           .optimizer_bytes = 12.0 / 2 * shared + 12 * own,
                           .kept_bytes = 2 * (attention + experts),
                           .running_bytes = 1e6 - experts - head,
                           .logit_bytes = head,
                           .other_bytes = spare_attention + 2 * (32 * 48 + 48 * 32)};
  const RankMemory found = RankMemoryOf(request, point, moe);
  EXPECT_DOUBLE_EQ(found.weight_bytes, last.weight_bytes);
  EXPECT_DOUBLE_EQ(found.gradient_bytes, last.gradient_bytes);
  EXPECT_DOUBLE_EQ(found.optimizer_bytes, last.optimizer_bytes);
  EXPECT_DOUBLE_EQ(found.kept_bytes, last.kept_bytes);
  EXPECT_DOUBLE_EQ(found.running_bytes, last.running_bytes);
  EXPECT_DOUBLE_EQ(found.logit_bytes, last.logit_bytes);
  EXPECT_DOUBLE_EQ(found.other_bytes, last.other_bytes);

  // Without experts and vocabulary the first stage needs more: 2 dense layers with 2 micro-batches on their way. The
  // network's products have the shape of attention's first, and the rows gathered for one of them come twice.
  request.model.moe_layer = {false, false, false, false};
  request.model.vocab = 0;
  const double dense = tokens * (2 * 2.0 * 32 + 2 * 2.0 * 64) / 2, gathered = 2 * 2.0 * tokens * 32;
  EXPECT_DOUBLE_EQ(MemoryBytes(request, point, {}), (2 + 4 + 12.0 / 2) * 2 * (kAttention + kDense) / 2 +
                                                        2 * 2 * (attention + dense) + gathered + spare_attention);
}

TEST(RankMemoryTest, WhileTheLossIsComputedNoLayerRuns) {
  LayoutRequest request = SmallRequest();
  const LayoutPoint point = PointOf(request, {1, 1, 1, 1, 1, 8});
  const double head = RankMemoryOf(request, point, {}).logit_bytes, kept = RankMemoryOf(request, point, {}).kept_bytes;
  const auto bytes = [&](double buffers) {
    return RankMemoryOf(request, point, {.buffer_bytes = buffers, .copies = 2}).total_bytes();
  };
  EXPECT_DOUBLE_EQ(bytes(head), bytes(0));  // Less than the logits, beyond what the layer keeps.
  EXPECT_DOUBLE_EQ(bytes(10 * (head + kept)) - bytes(9 * (head + kept)), head + kept);
}

TEST(RankMemoryTest, FlashAttentionKeepsANumberForEachQueryAndHead) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};
  const LayoutPoint point = PointOf(request, {2, 1, 1, 1, 1, 4});
  const auto kept = [&](AttentionKernel attention, Recompute recompute) {
    request.attention = attention;
    request.recompute = recompute;
    return RankMemoryOf(request, point, {}).kept_bytes;
  };
  const double without = kept(AttentionKernel::kStored, Recompute::kSelective);
  // 64 tokens, 4 heads, 4 layers, TP 2: a probability is 2 bytes a key, a sum is 4.
  EXPECT_DOUBLE_EQ(kept(AttentionKernel::kStored, Recompute::kNone) - without, 4 * 64 * 2.0 * 4 * 64 / 2);
  EXPECT_DOUBLE_EQ(kept(AttentionKernel::kFlash, Recompute::kNone) - without, 4 * 64 * 4.0 * 4 / 2);
  EXPECT_DOUBLE_EQ(kept(AttentionKernel::kFlash, Recompute::kSelective), without);
}

TEST(RankMemoryTest, FallsWithTheZeroStageAndWithRecomputationAndTheLeastIsLeast) {
  LayoutRequest request = SmallRequest();
  for (const LayoutPoint& point : AllLayoutPoints(request, SmallProfile().cluster)) {
    const MoeMemory moe = {.buffer_bytes = 1e5, .copies = 2};
    double before = std::numeric_limits<double>::infinity();
    for (request.zero_stage = 0; request.zero_stage <= kMaxZeroStage; ++request.zero_stage) {
      const double bytes = MemoryBytes(request, point, moe);
      EXPECT_LE(bytes, before * (1 + 1e-12));
      EXPECT_LE(MemoryBytes(request, point, {}), bytes);
      before = bytes;
    }
    request.zero_stage = 0;
    request.recompute = Recompute::kSelective;
    const double selective = MemoryBytes(request, point, moe);
    request.recompute = Recompute::kFull;
    EXPECT_LE(MemoryBytes(request, point, moe), selective + 1e5);  // The running layer's buffers are whole.
    request.recompute = Recompute::kNone;
    EXPECT_LE(selective, MemoryBytes(request, point, moe));
  }
}

// ---- Time. Products of 2 s a flop and nothing else: everything can be counted.

Profile ComputeProfile() {
  Profile profile = SmallProfile();
  for (CollectiveModel& entry : profile.collectives) entry.model = MakeCostModel(AlphaBeta{1e-30, 0});
  profile.kernels = {Line(Kernel::kExpertGemm, 0, 2)};
  return profile;
}

constexpr double kTiny = 1e-20;

TEST(StepTimeTest, ThePipelinesBubbleIsThatOfEqualStages) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};
  request.model.vocab = 0;  // Equal stages.
  const Profile profile = ComputeProfile();
  CostBook book(profile, 32, 2);
  const LayoutPoint point = PointOf(request, {1, 1, 1, 1, 4, 2});  // p = 4, m = 8.
  const StepTime time = PriceStep(request, point, {}, book);
  EXPECT_NEAR(time.bubble, 3.0 / 11, 1e-12);
  // One layer a stage: 64 tokens, 2 flops a parameter and 2 · 64 · 64 of scores; backward twice that; 2 s a flop.
  const double layer_s = 2 * 3 * 64.0 * (2 * (kAttention + kDense) + 2 * 64 * 64);
  EXPECT_NEAR(time.step_s, (8 + 4 - 1) * layer_s, 1e-9 * time.step_s);
}

TEST(StepTimeTest, UnequalStagesCountOnceAndTheSlowestForEveryFurtherMicroBatch) {
  LayoutRequest request = SmallRequest();
  const Profile profile = ComputeProfile();
  CostBook book(profile, 32, 2);
  const LayoutPoint point = PointOf(request, {1, 1, 1, 1, 2, 4});  // p = 2, m = 4.
  const MoeTime moe = {.forward_s = 1e6, .backward_s = 5e6};
  const double attention_s = 2 * 3 * 64.0 * (2 * kAttention + 2 * 64 * 64), dense_s = 2 * 3 * 64.0 * 2 * kDense;
  const double first_s = 2 * (attention_s + dense_s);
  const double last_s = 2 * (attention_s + 6e6) + 2 * 3 * 64.0 * 2 * kVocabulary;
  ASSERT_GT(last_s, first_s);
  EXPECT_NEAR(PriceStep(request, point, moe, book).step_s, first_s + 4 * last_s, 1e-9 * last_s);
  // Full recomputation adds every forward pass but the logits'.
  request.recompute = Recompute::kFull;
  const double again_s = 2 * (attention_s / 3 + 1e6);
  EXPECT_NEAR(PriceStep(request, point, moe, book).step_s, first_s * 4 / 3 + 4 * (last_s + again_s), 1e-9 * last_s);
}

TEST(StagesTest, LayersThatDoNotDivideGoToTheStagesInTheMiddleFirst) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer.assign(61, true);
  EXPECT_THAT(LayersOfStages(request, 8), ::testing::ElementsAre(7, 8, 8, 8, 8, 8, 7, 7));
  request.model.moe_layer.assign(15, true);
  EXPECT_THAT(LayersOfStages(request, 4), ::testing::ElementsAre(4, 4, 4, 3));
  request.virtual_stages = 2;  // Each rank has one of the first four and one of the last four.
  EXPECT_THAT(LayersOfStages(request, 4), ::testing::ElementsAre(2, 2, 2, 2, 2, 2, 2, 1));
  const std::vector<Stage> stages = StagesOf(request, 4);
  EXPECT_EQ(stages[0], (Stage{.index = 0, .layers = 4, .moe_layers = 4, .embeds = true, .predicts = false}));
  EXPECT_EQ(stages[3], (Stage{.index = 3, .layers = 3, .moe_layers = 3, .embeds = false, .predicts = true}));
}

TEST(StagesTest, LayersAsGivenLieInPipelineOrder) {
  LayoutRequest request = SmallRequest();  // Dense, dense, experts, experts.
  request.virtual_stages = 2;
  request.stages = {0, 1, 2, 1};
  const std::vector<Stage> stages = StagesOf(request, 2);
  EXPECT_EQ(stages[0], (Stage{.index = 0, .layers = 2, .moe_layers = 1, .embeds = true, .predicts = false}));
  EXPECT_EQ(stages[1], (Stage{.index = 1, .layers = 2, .moe_layers = 1, .embeds = false, .predicts = true}));
  const Cluster cluster = SmallProfile().cluster;
  EXPECT_EQ(CheckLayoutRequest(request, cluster), OkStatus());
  request.stages = {1, 1, 1, 2};
  EXPECT_EQ(CheckLayoutRequest(request, cluster).message(), "stages: found 5 layers in all, expected the model's 4");
  request.stages = {1, -1, 2, 2};
  EXPECT_EQ(CheckLayoutRequest(request, cluster).message(), "stages: found -1, expected a whole number of 0 to 4");
  request.stages.clear();
  request.virtual_stages = 5;
  EXPECT_EQ(CheckLayoutRequest(request, cluster).message(),
            "virtualStages: found 5, expected a whole number of 1 to 4");
}

TEST(StepTimeTest, VirtualStagesShortenTheBubble) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer.assign(8, false);
  request.model.vocab = 0;  // Equal stages.
  Profile profile = ComputeProfile();
  CostBook book(profile, 32, 2);
  const LayoutPoint point = PointOf(request, {1, 1, 1, 1, 4, 2});  // p = 4, m = 8.
  const double layer_s = 2 * 3 * 64.0 * (2 * (kAttention + kDense) + 2 * 64 * 64);
  for (const int rounds : {1, 2}) {
    request.virtual_stages = rounds;
    EXPECT_NEAR(PriceStep(request, point, {}, book).step_s, (8 + 3.0 / rounds) * 2 * layer_s, 1e-9 * layer_s);
  }
}

// A micro-batch is sent on once a virtual stage and pass, which of all but one hides behind what others compute. All of
// it counts while the pipeline fills and drains, and where a rank has one stage.
TEST(StepTimeTest, SendsOfVirtualStagesHideBehindOtherMicroBatches) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer.assign(8, false);
  request.model.vocab = 0;                                         // Equal stages.
  const LayoutPoint point = PointOf(request, {1, 1, 1, 1, 4, 2});  // p = 4, m = 8.
  const double layer_s = 2 * 3 * 64.0 * (2 * (kAttention + kDense) + 2 * 64 * 64);
  const auto step_s = [&](int rounds, double send_s) {
    request.virtual_stages = rounds;
    Profile profile = ComputeProfile();
    profile.collectives = {Line(Over(Collective::kAllToAll, {2, 1}), send_s, 0)};
    CostBook book(profile, 32, 2);
    return PriceStep(request, point, {}, book).step_s;
  };
  const double quarter_s = layer_s / 4;
  EXPECT_NEAR(step_s(1, quarter_s), (8 + 3.0) * (2 * layer_s + 2 * quarter_s), 1e-9 * layer_s);
  EXPECT_NEAR(step_s(2, quarter_s), (8 + 3.0 / 2) * (2 * layer_s + 4 * quarter_s) - 7 * 4 * quarter_s, 1e-9 * layer_s);
  // No more hides than there is to hide behind.
  EXPECT_NEAR(step_s(2, layer_s), (8 + 3.0 / 2) * (2 * layer_s + 4 * layer_s) - 7 * 2 * layer_s, 1e-9 * layer_s);
}

TEST(RankMemoryTest, VirtualStagesHaveMoreMicroBatchesOnTheirWay) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer.assign(8, false);
  const LayoutPoint point = PointOf(request, {1, 1, 1, 1, 4, 2});  // p = 4, m = 8.
  const double one = RankMemoryOf(request, point, {}).kept_bytes / 4;
  request.virtual_stages = 2;
  // The first rank starts 2 · 3 + 4 passes before it goes back, and has one more: 11 of half a micro-batch's layers.
  EXPECT_DOUBLE_EQ(RankMemoryOf(request, point, {}).kept_bytes, 11.0 / 2 * one);
}

TEST(CostBookTest, ProductsInLessThanBf16AreMeasuredOrAssumed) {
  const LinearWork work = {.rows = 64, .in_features = 32, .out_features = 32};
  Profile profile = SmallProfile();
  const auto add = [&](int bytes, double flops_per_s) {
    profile.kernels.push_back({{.kernel = Kernel::kLinear, .bytes_per_element = bytes, .shape = work.shape()},
                               MakeCostModel(LogLog{{{work.flops(), work.flops() / flops_per_s}}})});
  };
  profile.kernels.push_back(Line(Kernel::kActivation, 0, 1e-12));
  add(2, 1e9);
  const double bf16_s = CostBook(profile, 32, 2).LinearS(Kernel::kLinear, work), converted_s = 64 * 32 * 5 * 1e-12;
  CostBook assumed(profile, 32, 2, {}, Precision::kFp8);
  EXPECT_NEAR(assumed.LinearS(Kernel::kLinear, work), bf16_s / 1.5 + converted_s, 1e-12 * bf16_s);
  EXPECT_THAT(assumed.notes().Warnings(), ::testing::Contains(::testing::HasSubstr("assumed to be 1.5 times as fast")));
  LinearWork last = work;
  last.keeps_precision = true;
  EXPECT_DOUBLE_EQ(assumed.LinearS(Kernel::kLinear, last), bf16_s);
  add(1, 3e9);
  CostBook measured(profile, 32, 2, {}, Precision::kFp8);
  EXPECT_NEAR(measured.LinearS(Kernel::kLinear, work), bf16_s / 3 + converted_s, 1e-12 * bf16_s);
  EXPECT_THAT(measured.notes().Warnings(), ::testing::IsEmpty());
}

TEST(StepTimeTest, WhereProductsTakeAllTheTimeTheStepIsAsLongAsItsBound) {
  const LayoutRequest request = SmallRequest();
  const Profile profile = ComputeProfile();
  CostBook book(profile, 32, 2);
  const LayoutPoint point = PointOf(request, {1, 1, 1, 1, 1, 8});  // One stage, two micro-batches.
  const double attention_s = 2 * 3 * 64.0 * (2 * kAttention + 2 * 64 * 64), dense_s = 2 * 3 * 64.0 * 2 * kDense;
  const double logits_s = 2 * 3 * 64.0 * 2 * kVocabulary;
  const double experts_s = 2 * 3 * 64.0 * 2 * (2 * kExpert);  // Each token visits two.
  const auto step_s = [&](double moe_s) { return 2 * (4 * attention_s + 2 * dense_s + logits_s + 2 * moe_s); };
  const auto priced_s = [&](double moe_s) {
    return PriceStep(request, point, {.forward_s = moe_s / 3, .backward_s = moe_s * 2 / 3}, book).step_s;
  };
  // A MoE layer takes at least what its experts' products do.
  EXPECT_NEAR(LeastStepS(request, point, book), step_s(experts_s), 1e-9 * step_s(experts_s));
  EXPECT_NEAR(priced_s(experts_s), step_s(experts_s), 1e-9 * step_s(experts_s));
}

TEST(StepTimeTest, GradientsHideBehindAllLayersButTheLast) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};
  request.model.vocab = 0;
  Profile profile = ComputeProfile();
  const CollectiveKey replicas = Over(Collective::kAllReduce, {8, 4});
  const LayoutPoint point = PointOf(request, {1, 1, 1, 1, 1, 8});
  const double backward_s = 4 * 2 * 2 * 64.0 * (2 * (kAttention + kDense) + 2 * 64 * 64);
  const auto gradient_s = [&](double slice_s) {
    profile.collectives = {Line(replicas, slice_s, 0)};
    CostBook book(profile, 32, 2);
    return PriceStep(request, point, {}, book).gradient_s;
  };
  // Four slices; three quarters of the backward pass hide what is beyond the last.
  EXPECT_NEAR(gradient_s(backward_s / 8), backward_s / 8, 1e-9 * backward_s);
  EXPECT_NEAR(gradient_s(backward_s), 4 * backward_s - 3 * backward_s / 4, 1e-9 * backward_s);
}

TEST(StepTimeTest, ExpertsCommunicationKeepsGradientsWaiting) {
  LayoutRequest request = SmallRequest();
  Profile profile = ComputeProfile();
  profile.collectives.push_back(Line(Over(Collective::kAllReduce, {8, 4}), 1e9, 0));
  CostBook book(profile, 32, 2);
  const LayoutPoint point = PointOf(request, {1, 1, 1, 1, 1, 8});
  const MoeTime quiet = {.forward_s = 1e6, .backward_s = 5e6};
  MoeTime busy = quiet;
  busy.backward_communication_s = 4e6;
  // Two MoE layers of four, three quarters of the window.
  EXPECT_NEAR(PriceStep(request, point, busy, book).gradient_s - PriceStep(request, point, quiet, book).gradient_s,
              0.75 * 2 * 4e6, 1);
}

TEST(StepTimeTest, CommunicationThatIsDoneAgainKeepsGradientsWaiting) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};
  request.model.vocab = 0;
  request.recompute = Recompute::kFull;
  request.sequence_parallel = false;
  Profile profile = ComputeProfile();
  const LayoutPoint point = PointOf(request, {2, 1, 1, 1, 1, 4});
  // One of two tensor ranks: half the flops of a layer, at 2 s each. Four backward passes of three times that.
  const double forward_s = 2 * 64.0 * (2 * (kAttention + kDense) + 2 * 64 * 64) / 2;
  const double window_s = 4 * 3 * forward_s, slice_s = window_s;
  const auto gradient_s = [&](double tensor_s) {
    profile.collectives = {Line(Over(Collective::kAllReduce, {4, 2}), slice_s, 0),
                           Line(Over(Collective::kAllReduce, {2, 2}), tensor_s, 0)};
    CostBook book(profile, 32, 2);
    return PriceStep(request, point, {}, book).gradient_s;
  };
  // All-reduces over TP, those of the forward pass that is computed again too, take time in which no gradient is sent.
  EXPECT_NEAR(gradient_s(kTiny), 4 * slice_s - 0.75 * window_s, 1e-9 * slice_s);
  EXPECT_NEAR(gradient_s(forward_s), 4 * slice_s - 0.75 * window_s, 1e-9 * slice_s);
}

TEST(StepTimeTest, KeysAndValuesHideBehindTheScores) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};
  request.model.vocab = 0;
  request.gpus = 2;
  const LayoutPoint point = PointOf(request, {1, 1, 1, 2, 1, 1});
  const double scores_s = 2 * 32.0 * 2 * 64 * 64;  // 32 tokens of a context, 64 keys.
  const auto step_s = [&](double exchange_s) {
    Profile profile = ComputeProfile();
    profile.collectives = {Line(Over(Collective::kAllGather, {2, 2}), exchange_s, 0),
                           Line(Over(Collective::kReduceScatter, {2, 2}), exchange_s, 0),
                           Line(Over(Collective::kAllReduce, {2, 2}), kTiny, 0)};
    CostBook book(profile, 32, 2);
    return PriceStep(request, point, {}, book).step_s;
  };
  EXPECT_NEAR(step_s(scores_s), step_s(kTiny), 1e-9 * step_s(kTiny));
  // Half as long again: forward waits half of the scores; backward, of keys and gradients, one of the scores. 16
  // micro-batches of 4 layers.
  EXPECT_NEAR(step_s(1.5 * scores_s) - step_s(kTiny), 16 * 4 * 1.5 * scores_s, 1e-9 * step_s(kTiny));
}

TEST(StepTimeTest, TwiceTheReplicasNeverSlowThePipeline) {
  const Profile profile = SmallProfile();
  CostBook book(profile, 32, 2);
  LayoutRequest request = SmallRequest();
  const MoeTime moe = {.forward_s = 1e-3, .backward_s = 3e-3};
  for (const LayoutPoint& point : AllLayoutPoints(request, profile.cluster)) {
    LayoutPoint twice = point;
    if (twice.micro_batches % 2 != 0) continue;
    twice.layout.data_parallel *= 2;
    twice.micro_batches /= 2;
    if (NeighbourStages(point, 4) != NeighbourStages(twice, 4)) continue;  // Further away.
    const StepTime one = PriceStep(request, point, moe, book), two = PriceStep(request, twice, moe, book);
    EXPECT_LE(two.step_s - two.gradient_s, (one.step_s - one.gradient_s) * (1 + 1e-12));
  }
}

// ---- The search.

LayoutAnswer Answer(const LayoutRequest& request, const Profile& profile, const LayoutOptions& options = {}) {
  auto answer = RankLayouts(request, profile, options);
  EXPECT_TRUE(answer.ok()) << answer.status().message();
  return answer.ok() ? *answer : LayoutAnswer{};
}

// Anything that the small model can be asked, over 2 to `most_gpus` GPUs.
struct AnyCase {
  LayoutRequest request = SmallRequest();
  Profile profile = SmallProfile();

  AnyCase(std::mt19937& random, int most_gpus) {
    const auto below = [&](int limit) { return std::uniform_int_distribution(0, limit - 1)(random); };
    const auto scale = [&] { return std::ldexp(1.0, below(9) - 4); };
    if (below(4) > 0) {  // Else pairs are predicted from links.
      for (const Collective collective :
           {Collective::kAllToAll, Collective::kAllGather, Collective::kReduceScatter, Collective::kAllReduce}) {
        profile.collectives.push_back(Line(Over(collective, {2, 2}), 0, 0));
      }
    }
    for (CollectiveModel& entry : profile.collectives) {
      entry.model = MakeCostModel(AlphaBeta{1e-5 * scale(), 5e-10 * scale()});
    }
    profile.kernels[0] = Line(Kernel::kExpertGemm, 1e-5 * scale(), 2e-12 * scale());
    for (request.gpus = 2; request.gpus < most_gpus && below(3) > 0;) request.gpus *= 2;
    request.global_batch = most_gpus;
    request.sequence_length = 64 << below(4);
    request.zero_stage = below(4);
    request.recompute = static_cast<Recompute>(below(3));
    request.sequence_parallel = below(2) == 0;
    request.model.experts = 2 << below(2);
    request.model.moe_layer[1] = below(2) == 0;
    request.top = 5;
    if (below(2) == 0) profile.cluster.device_memory_bytes = 1e6 * scale();
  }
};

// The search that prunes against the one that prices everything, for several lengths of the answer; how many points it
// left out.
int ExpectPruningChangesNothing(AnyCase any, const std::string& which) {
  const LayoutAnswer whole = Answer(any.request, any.profile, {.prune = false});
  int left_out = 0;
  for (int top = any.request.top; top > 0; --top) {
    any.request.top = top;
    LayoutAnswer pruned = Answer(any.request, any.profile, {.threads = 1 + top % 2});
    EXPECT_LE(pruned.priced, whole.priced) << which;
    left_out += whole.priced - pruned.priced;
    const size_t answered = std::min<size_t>(top, whole.layouts.size());
    EXPECT_THAT(pruned.layouts, ElementsAreArray(whole.layouts.begin(), whole.layouts.begin() + answered)) << which;
    if (answered < whole.layouts.size()) continue;
    pruned.priced = whole.priced;
    EXPECT_EQ(pruned, whole) << which;
  }
  for (const RankedLayout& layout : whole.layouts) {
    EXPECT_TRUE(any.profile.cluster.device_memory_bytes == 0 ||
                layout.memory.total_bytes() <= any.profile.cluster.device_memory_bytes);
  }
  EXPECT_TRUE(std::ranges::is_sorted(whole.layouts, {}, &RankedLayout::step_time_s));
  return left_out;
}

TEST(RankLayoutsTest, PruningChangesNothingOnRandomModels) {
  std::mt19937 random(TestSeed());
  int cases = 0, pruned_cases = 0;
  for (int round = 0; round < 420 && !HasFailure(); ++round) {
    const AnyCase any(random, /*most_gpus=*/round % 100 == 0 ? 8 : 2);
    if (ExpectPruningChangesNothing(any, "round " + std::to_string(round)) > 0) ++pruned_cases;
    cases += any.request.top;
  }
  EXPECT_GE(cases, 2000);
  EXPECT_GT(pruned_cases, 100);
}

TEST(RankLayoutsTest, NoStepIsFasterThanItsBound) {
  std::mt19937 random(TestSeed());
  int checked = 0;
  double closest = 0;
  for (int round = 0; round < 100; ++round) {
    const AnyCase any(random, /*most_gpus=*/8);
    const LayoutRequest& request = any.request;
    CostBook book(any.profile, 32, 2);
    std::map<MoeQuestion, MoePlans> known;
    for (const LayoutPoint& point : AllLayoutPoints(request, any.profile.cluster)) {
      const MoeQuestion question = QuestionOf(request, point);
      if (!known.contains(question)) {
        const Workload workload = WorkloadOf(request, question);
        known[question] = PlanMoe(request, question, book.ForLayer(workload.layer, workload.layout));
      }
      const double least_s = LeastStepS(request, point, book);
      for (const MoePlan& plan : known[question].plans) {
        const double step_s = PriceStep(request, point, plan.time, book).step_s;
        ASSERT_LE(least_s, step_s * (1 + 1e-9)) << "round " << round;
        closest = std::max(closest, least_s / step_s);
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 5000);
  EXPECT_GT(closest, 0.8) << "a bound that is never near says nothing";
}

TEST(RankLayoutsTest, TheFirstIsTheBestOfEverything) {
  // Without experts nothing is planned, and the answer is a loop over the points.
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};
  request.model.experts = 0;
  const Profile profile = SmallProfile();
  CostBook book(profile, 32, 2);
  double best_s = std::numeric_limits<double>::infinity();
  for (const LayoutPoint& point : AllLayoutPoints(request, profile.cluster)) {
    best_s = std::min(best_s, PriceStep(request, point, {}, book).step_s);
  }
  const LayoutAnswer answer = Answer(request, profile);
  ASSERT_EQ(answer.layouts.size(), 5u);
  const RankedLayout& best = answer.layouts.front();
  EXPECT_EQ(best.step_time_s, best_s);
  EXPECT_DOUBLE_EQ(best.tokens_per_s, 16 * 64 / best_s);
  EXPECT_DOUBLE_EQ(best.mfu, ModelFlopsUtilisation(request, best_s, 1e12));
  EXPECT_EQ(best.moe_layer_s, 0);
}

// What a layout names is what its times hang on: anything else may take twice as long.
TEST(RankLayoutsTest, TimesArePricedFromTheEntriesThatAreNamed) {
  LayoutRequest request = SmallRequest();
  request.top = 0;
  Profile profile = SmallProfile();
  profile.collectives.clear();  // Nothing is predicted: that hangs on all entries.
  for (const Collective collective :
       {Collective::kAllToAll, Collective::kAllGather, Collective::kReduceScatter, Collective::kAllReduce}) {
    for (const GroupShape group : {GroupShape{2, 1}, {2, 2}, {4, 2}, {4, 4}, {8, 4}}) {
      const double slower = 1 + group.size / 8.0 + (group.size > group.ranks_per_node ? 1 : 0);
      profile.collectives.push_back(Line(Over(collective, group), 1e-5 * slower, 2e-10 * slower));
    }
  }
  const LayoutAnswer answer = Answer(request, profile);
  const auto twice = [&](const auto& is_slowed) {
    Profile slowed = profile;
    const auto slow = [&](auto& entry) {
      auto& line = std::get<AlphaBeta>(entry.model.curve);
      if (is_slowed(CostKey(entry.key))) line = {2 * line.alpha_s, 2 * line.beta_s_per_unit};
    };
    std::ranges::for_each(slowed.collectives, slow);
    std::ranges::for_each(slowed.kernels, slow);
    return Answer(request, slowed);
  };
  const auto step_of = [](const LayoutAnswer& of, const RankedLayout& row) {
    const auto found = std::ranges::find_if(of.layouts, [&](const RankedLayout& one) {
      return one.layout == row.layout && one.horizontal_contexts == row.horizontal_contexts;
    });
    return found == of.layouts.end() ? 0 : found->step_time_s;
  };
  ASSERT_GT(answer.layouts.size(), 5u);
  int unnamed = 0;
  for (size_t i = 0; i < answer.layouts.size(); i += 1 + answer.layouts.size() / 8) {
    const RankedLayout& layout = answer.layouts[i];
    ASSERT_FALSE(layout.extrapolated);
    EXPECT_THAT(layout.priced_from, Contains(CostKey(KernelKey{.kernel = Kernel::kExpertGemm})));
    const auto is_named = [&](const CostKey& key) { return std::ranges::count(layout.priced_from, key) == 1; };
    const auto is_other = [&](const CostKey& key) { return !is_named(key); };
    unnamed += static_cast<int>(profile.collectives.size() + profile.kernels.size() - layout.priced_from.size());
    EXPECT_EQ(step_of(twice(is_other), layout), layout.step_time_s);
    EXPECT_GT(step_of(twice(is_named), layout), 1.5 * layout.step_time_s);
  }
  EXPECT_GT(unnamed, 0);
}

// Keys and values of samples so long that the exchange is seen: contexts two apart lie in a node, four apart do not.
TEST(RankLayoutsTest, OrientationsOfContextsAreRankedByTime) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {true, true, true, true};
  request.top = 0;
  const auto rows_of = [&](const Profile& profile) {
    // [CP 2, DP 4], or [EP 4, CP 2]: contexts next to each other, or 4 apart.
    const Layout layout = {1, 4, 1, 2, 1, 4};
    std::vector<RankedLayout> rows;
    for (const RankedLayout& row : Answer(request, profile).layouts) {
      if (row.layout == layout) rows.push_back(row);
    }
    return rows;
  };
  const auto with = [](double inside_s, double between_s) {
    Profile profile = ComputeProfile();
    profile.kernels = {Line(Kernel::kExpertGemm, 0, 1e-12)};
    profile.collectives.clear();
    for (const Collective collective :
         {Collective::kAllToAll, Collective::kAllGather, Collective::kReduceScatter, Collective::kAllReduce}) {
      for (const GroupShape group : {GroupShape{2, 2}, {4, 4}, {8, 4}}) {
        profile.collectives.push_back(Line(Over(collective, group), group.size == 2 ? inside_s : 1e-5, 0));
      }
      profile.collectives.push_back(Line(Over(collective, {2, 1}), between_s, 0));
    }
    return profile;
  };
  const auto faster_inside = rows_of(with(1e-5, 1e-3)), faster_between = rows_of(with(1e-3, 1e-5));
  const auto alike = rows_of(with(1e-5, 1e-5));
  ASSERT_EQ(faster_inside.size(), 2u);
  ASSERT_EQ(faster_between.size(), 2u);
  ASSERT_EQ(alike.size(), 2u);
  EXPECT_FALSE(faster_inside[0].horizontal_contexts);
  EXPECT_LT(faster_inside[0].step_time_s, faster_inside[1].step_time_s);
  EXPECT_TRUE(faster_between[0].horizontal_contexts);
  EXPECT_LT(faster_between[0].step_time_s, faster_between[1].step_time_s);
  // The one that MoNTA's rule has for cp 2 < ep 4 stands first where both take as long.
  EXPECT_EQ(alike[0].step_time_s, alike[1].step_time_s);
  EXPECT_TRUE(alike[0].horizontal_contexts);
}

TEST(RankLayoutsTest, APeakBelowWhatProductsReachIsNamedAndNotCounted) {
  const LayoutRequest request = SmallRequest();
  EXPECT_THAT(Answer(request, SmallProfile()).warnings, Not(Contains(HasSubstr("MFU"))));
  Profile slow = SmallProfile();
  slow.cluster.peak_flops_per_s = 1;
  const LayoutAnswer answer = Answer(request, slow);
  const RankedLayout& best = answer.layouts.front();
  const double fastest = CostBook(slow, request.model.model_dim, request.bytes_per_element).FastestFlopsPerS();
  EXPECT_DOUBLE_EQ(best.mfu, ModelFlopsUtilisation(request, best.step_time_s, fastest));
  EXPECT_GT(best.mfu, 0);
  EXPECT_LE(best.mfu, 1);
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("which products reach: cluster.peakFlopsPerS is 1, ")));
}

TEST(RankLayoutsTest, WhatFillsTheMemoryToTheLastByteFits) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};  // So that nothing is added to the least.
  Profile profile = SmallProfile();
  double least = std::numeric_limits<double>::infinity();
  for (const LayoutPoint& point : AllLayoutPoints(request, profile.cluster)) {
    least = std::min(least, MemoryBytes(request, point, {}));
  }
  profile.cluster.device_memory_bytes = least;
  const LayoutAnswer full = Answer(request, profile);
  ASSERT_GE(full.layouts.size(), 1u);
  EXPECT_EQ(full.layouts.front().memory.total_bytes(), least);
  profile.cluster.device_memory_bytes = least - 1;
  EXPECT_THAT(Answer(request, profile).layouts, IsEmpty());
}

TEST(RankLayoutsTest, WhereNothingFitsTheAnswerSaysHowMuchIsMissing) {
  Profile profile = SmallProfile();
  profile.cluster.device_memory_bytes = 1;
  const LayoutAnswer none = Answer(SmallRequest(), profile);
  EXPECT_THAT(none.layouts, IsEmpty());
  EXPECT_EQ(none.fitting, 0);
  double least = std::numeric_limits<double>::infinity();
  for (const LayoutPoint& point : AllLayoutPoints(SmallRequest(), profile.cluster)) {
    least = std::min(least, MemoryBytes(SmallRequest(), point, {}));
  }
  EXPECT_EQ(none.least_missing_bytes, least - 1);
}

TEST(RankLayoutsTest, GroupsThatWereNotMeasuredAreNamed) {
  const LayoutAnswer answer = Answer(SmallRequest(), SmallProfile());
  EXPECT_TRUE(std::ranges::any_of(answer.layouts, &RankedLayout::extrapolated));
  EXPECT_THAT(answer.warnings, Contains(HasSubstr(": not measured; extrapolated from links, 90 % interval × ")));
}

TEST(RankLayoutsTest, WithoutAnyLinkBetweenNodesTheMissingKeyIsNamed) {
  Profile profile = SmallProfile();
  std::erase_if(profile.collectives, [](const CollectiveModel& entry) { return entry.key.group.ranks_per_node == 1; });
  std::erase_if(profile.collectives, [](const CollectiveModel& entry) { return entry.key.group.size == 8; });
  const auto answer = RankLayouts(SmallRequest(), profile);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(answer.status().message(), AllOf(HasSubstr("no layout can be priced"), HasSubstr("the profile lacks "),
                                               HasSubstr("measure with: moeplan calibrate")));
}

// Between nodes everything is measured, and nothing of the links inside.
TEST(RankLayoutsTest, LayoutsThatLoseTheirPriceAreCountedWithTheSampleThatTheyLack) {
  Profile profile = SmallProfile();
  std::erase_if(profile.collectives, [](const CollectiveModel& entry) { return entry.key.group.ranks_per_node > 1; });
  LayoutRequest request = SmallRequest();
  request.model.moe_layer.assign(8, false);
  const LayoutAnswer answer = Answer(request, profile);
  ASSERT_FALSE(answer.layouts.empty());
  EXPECT_THAT(answer.warnings,
              Contains(AllOf(HasSubstr("that may be fast ha"), HasSubstr("no price: the profile lacks "),
                             HasSubstr("measure with: moeplan calibrate"))));
}

TEST(RankLayoutsTest, WithoutProductsTheClustersPeakServes) {
  Profile profile = SmallProfile();
  profile.kernels.clear();
  EXPECT_THAT(Answer(SmallRequest(), profile).warnings,
              Contains("EXPERT_GEMM: not in the profile; products are priced at cluster.peakFlopsPerS"));
}

// A layer whose routed experts were measured and whose shared expert was not lost every layout that asks for just these
// experts.
TEST(RankLayoutsTest, ASharedExpertThatWasNotMeasuredIsPricedAsTheNearest) {
  LayoutRequest request = SmallRequest();
  request.top = 1000;
  request.model.shared_hidden_dim = 3 * request.model.expert_hidden_dim;
  Profile profile = SmallProfile();
  const auto layouts = [&] {
    std::vector<Layout> layouts;
    for (const RankedLayout& ranked : Answer(request, profile).layouts) layouts.push_back(ranked.layout);
    return layouts;
  };
  const std::vector<Layout> all = layouts();  // Its products match any dimensions.
  for (KernelModel& entry : profile.kernels) {
    if (entry.key.kernel != Kernel::kExpertGemm) continue;
    entry.key.model_dim = request.model.model_dim;
    entry.key.hidden_dim = request.model.expert_hidden_dim;
  }
  EXPECT_THAT(layouts(), testing::UnorderedElementsAreArray(all));
  EXPECT_THAT(Answer(request, profile).warnings, Contains(HasSubstr("products of shared experts: priced as ")));
}

TEST(RankLayoutsTest, WrongRequestsAreRefused) {
  const auto error = [](auto change) {
    LayoutRequest request = SmallRequest();
    change(request);
    return RankLayouts(request, SmallProfile()).status().message();
  };
  EXPECT_THAT(error([](LayoutRequest& r) { r.gpus = 0; }), HasSubstr("gpus: found 0"));
  EXPECT_THAT(error([](LayoutRequest& r) { r.gpus = 6; }), HasSubstr("whole nodes of the profile's 4 GPUs"));
  EXPECT_THAT(error([](LayoutRequest& r) { r.global_batch = 0; }), HasSubstr("globalBatch: found 0"));
  EXPECT_THAT(error([](LayoutRequest& r) { r.sequence_length = -1; }), HasSubstr("sequenceLength: found -1"));
  EXPECT_THAT(error([](LayoutRequest& r) { r.zero_stage = 4; }),
              HasSubstr("zeroStage: found 4, expected a whole number of 0 to 3"));
  EXPECT_THAT(error([](LayoutRequest& r) { r.capacity_factor = 0; }), HasSubstr("capacityFactor: found 0"));
  EXPECT_THAT(error([](LayoutRequest& r) { r.model.encoder_layers = 2; }), HasSubstr("encoder"));
  EXPECT_THAT(error([](LayoutRequest& r) { r.global_batch = r.sequence_length = 1, r.model.heads = 1; }),
              HasSubstr("no layout: 8 GPUs"));
}

}  // namespace
}  // namespace moeplan::planner
