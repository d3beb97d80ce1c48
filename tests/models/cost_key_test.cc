
#include <gtest/gtest.h>

#include <random>

#include "models/cost/operation.h"
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
                                .ctas = any(32)};
    if (collective.collective == Collective::kAllToAllAllGather) {
      collective.gather_group_size = 1 + any(7);
      collective.shards = 1 + any(7);
    }
    EXPECT_EQ(NamedCost(Describe(collective)), CostKey(collective)) << Describe(collective);
    const KernelKey kernel = {.kernel = static_cast<Kernel>(any(15)),
                              .contention = static_cast<Contention>(any(4)),
                              .bytes_per_element = maybe(8),
                              .model_dim = maybe(9000),
                              .hidden_dim = maybe(9000),
                              .ctas = any(32)};
    EXPECT_EQ(NamedCost(Describe(kernel)), CostKey(kernel)) << Describe(kernel);
  }
}

TEST(CostKeyTest, OtherTextsNameNone) {
  for (const char* text :
       {"", " ", "GATES", "ALL_TO_ALL", "ALL_TO_ALL groupSize", "ALL_TO_ALL groupSize 4", "ALL_TO_ALL groupSize 4 ranks 2",
        "ALL_TO_ALL ranksPerNode 2 groupSize 4", "ALL_TO_ALL groupSize 4 ranksPerNode 2 ", "GATE groupSize 4",
        "ALL_TO_ALL groupSize 4 ranksPerNode 2 algorithm DIRECT", "ALL_TO_ALL groupSize x ranksPerNode 2",
        "GATE contention NONE", "GATE contention LOUD", "GATE modelDim 99999999999", "GATE GATE"}) {
    EXPECT_FALSE(NamedCost(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace moeplan
