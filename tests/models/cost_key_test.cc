
#include <gtest/gtest.h>

#include <random>

#include "models/cost/operation.h"
#include "models/cost/profile.h"
#include "models/links/link_model.h"
#include "models/text.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

TEST(CostKeyTest, TheTextOfAKeyNamesIt) {
  std::mt19937_64 random(TestSeed());
  const auto any = [&](int most) { return static_cast<int>(random() % (most + 1)); };
  const auto maybe = [&](int most) { return any(1) == 0 ? std::nullopt : std::optional(1 + any(most)); };
  for (int round = 0; round < 1000; ++round) {
    CollectiveKey collective = {.collective = static_cast<Collective>(any(4)),
                                .algorithm = static_cast<AllToAllAlgorithm>(any(3)),
                                .group = {1 + any(100), 1 + any(7)},
                                .contention = static_cast<Contention>(any(4)),
                                .bytes_per_element = maybe(8),
                                .ctas = any(32),
                                .stride = any(3)};
    if (collective.collective == Collective::kAllToAllAllGather) {
      collective.gather_group_size = 1 + any(7);
      collective.shards = 1 + any(7);
    }
    if (collective.collective == Collective::kAllToAll) {
      collective.dispatcher = static_cast<Dispatcher>(any(3));
      collective.transport = static_cast<Transport>(any(2));
    }
    EXPECT_EQ(NamedCost(Describe(collective)), CostKey(collective)) << Describe(collective);
    KernelKey kernel = {.kernel = static_cast<Kernel>(any(27)),
                        .contention = static_cast<Contention>(any(4)),
                        .bytes_per_element = maybe(8),
                        .model_dim = maybe(9000),
                        .hidden_dim = maybe(9000),
                        .ctas = any(32)};
    for (const KernelShapeField& field : KernelShapeFields()) kernel.shape.*field.value = any(9000);
    EXPECT_EQ(NamedCost(Describe(kernel)), CostKey(kernel)) << Describe(kernel);
  }
}

TEST(CostKeyTest, LinearLayersAndAttentionAndNothingElseHaveAShapeAndAWholeOne) {
  const KernelShape linear = {.in_features = 8, .out_features = 4, .experts = 1};
  const KernelShape attention = {.heads = 2, .kv_heads = 1, .query_key_dim = 8, .value_dim = 8, .sequence = 16};
  EXPECT_TRUE(ValidateKernelKey({.kernel = Kernel::kLinearWeightGradient, .shape = linear}, "k").ok());
  EXPECT_TRUE(ValidateKernelKey({.kernel = Kernel::kAttention, .shape = attention}, "k").ok());
  EXPECT_TRUE(ValidateKernelKey({.kernel = Kernel::kNorm}, "k").ok());
  EXPECT_EQ(ValidateKernelKey({.kernel = Kernel::kLinear}, "k").message(),
            "k.shape.inFeatures: found 0, expected at least 1 for LINEAR");
  EXPECT_EQ(ValidateKernelKey({.kernel = Kernel::kLinear, .shape = attention}, "k").message(),
            "k.shape.inFeatures: found 0, expected at least 1 for LINEAR");
  EXPECT_EQ(ValidateKernelKey({.kernel = Kernel::kNorm, .shape = linear}, "k").message(),
            "k.shape.inFeatures: found 8 for NORM, expected it for a linear layer or attention alone");
  EXPECT_EQ(ValidateCollectiveKey({.group = {2, 2}, .stride = -1}, "c").message(),
            "c.stride: found -1, expected at least 0");
  EXPECT_EQ(ValidateCollectiveKey({.group = {2, 2}, .transport = Transport::kUccl}, "c").message(),
            "c.transport: found UCCL without a dispatcher, expected DEEPEP or HYBRID_EP");
  const char* const of_all_to_all = ", expected DEEPEP or HYBRID_EP of ALL_TO_ALL DIRECT";
  CollectiveKey dispatched = {.collective = Collective::kAllGather, .group = {2, 2}, .dispatcher = Dispatcher::kDeepEp};
  EXPECT_EQ(ValidateCollectiveKey(dispatched, "c").message(),
            StrCat("c.dispatcher: found DEEPEP of ALL_GATHER DIRECT", of_all_to_all));
  dispatched.collective = Collective::kAllToAll;
  EXPECT_TRUE(ValidateCollectiveKey(dispatched, "c").ok());
  dispatched.algorithm = AllToAllAlgorithm::kHier2d;
  EXPECT_EQ(ValidateCollectiveKey(dispatched, "c").message(),
            StrCat("c.dispatcher: found DEEPEP of ALL_TO_ALL HIER_2D", of_all_to_all));
  dispatched = {.group = {2, 2}, .dispatcher = Dispatcher::kAllGather};
  EXPECT_FALSE(ValidateCollectiveKey(dispatched, "c").ok());
}

TEST(CostKeyTest, AnEntryOfAStrideAnswersForItAloneAndBeforeOneOfAny) {
  const CollectiveKey any = {.collective = Collective::kAllGather, .group = {4, 4}};
  CollectiveKey apart = any;
  apart.stride = 2;
  Profile profile;
  profile.collectives = {{any, MakeCostModel(AlphaBeta{1, 0})}, {apart, MakeCostModel(AlphaBeta{2, 0})}};
  const auto alpha = [&](int stride) {
    CollectiveKey key = any;
    key.stride = stride;
    return std::get<AlphaBeta>(Find(profile, key)->curve).alpha_s;
  };
  EXPECT_EQ(alpha(0), 1);
  EXPECT_EQ(alpha(1), 1);
  EXPECT_EQ(alpha(2), 2);
}

TEST(CostKeyTest, AnEntryOfADispatcherAnswersForItAlone) {
  const CollectiveKey plain = {.collective = Collective::kAllToAll, .group = {16, 8}};
  CollectiveKey dispatched = plain;
  dispatched.dispatcher = Dispatcher::kDeepEp, dispatched.transport = Transport::kNvshmem;
  Profile profile;
  profile.collectives = {{dispatched, MakeCostModel(AlphaBeta{2, 0})}};
  EXPECT_EQ(Find(profile, plain), nullptr);
  EXPECT_NE(Find(profile, dispatched), nullptr);
  dispatched.transport = Transport::kNccl;
  EXPECT_EQ(Find(profile, dispatched), nullptr);
  EXPECT_FALSE(CollectivesThatTeach(profile).size()) << "rows that travel once say nothing of links";
}

TEST(CostKeyTest, OtherTextsNameNone) {
  for (const char* text :
       {"", " ", "GATES", "ALL_TO_ALL", "ALL_TO_ALL groupSize", "ALL_TO_ALL groupSize 4",
        "ALL_TO_ALL groupSize 4 ranks 2", "ALL_TO_ALL ranksPerNode 2 groupSize 4",
        "ALL_TO_ALL groupSize 4 ranksPerNode 2 ", "GATE groupSize 4",
        "ALL_TO_ALL groupSize 4 ranksPerNode 2 algorithm DIRECT", "ALL_TO_ALL groupSize x ranksPerNode 2",
        "GATE contention NONE", "GATE contention LOUD", "GATE modelDim 99999999999", "GATE GATE"}) {
    EXPECT_FALSE(NamedCost(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace moeplan
