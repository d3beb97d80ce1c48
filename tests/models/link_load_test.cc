#include "models/links/link_load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "models/all_to_all/algorithm.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

constexpr auto kIntra = static_cast<size_t>(LinkClass::kIntraNode);
constexpr auto kInter = static_cast<size_t>(LinkClass::kInterNode);

CollectiveKey Over(Collective collective, int size, int ranks_per_node,
                   AllToAllAlgorithm algorithm = AllToAllAlgorithm::kDirect) {
  return {.collective = collective, .algorithm = algorithm, .group = {size, ranks_per_node}};
}

LinkLoad Load(const CollectiveKey& key, GatherRoute route = GatherRoute::kDirect) { return LoadOf(key, route).value(); }

void ExpectLoad(const LinkLoad& load, double intra_steps, double intra_share, double inter_steps, double inter_share) {
  EXPECT_DOUBLE_EQ(load.steps[kIntra], intra_steps);
  EXPECT_DOUBLE_EQ(load.shares[kIntra], intra_share);
  EXPECT_DOUBLE_EQ(load.steps[kInter], inter_steps);
  EXPECT_DOUBLE_EQ(load.shares[kInter], inter_share);
}

TEST(LinkLoadTest, AnAllToAllSendsOneBlockToEachOtherRank) {
  // 16 ranks, 8 a node: 7 of 16 blocks stay inside, 8 pass the NIC.
  ExpectLoad(Load(Over(Collective::kAllToAll, 16, 8)), 7, 7.0 / 16, 8, 8.0 / 16);
  ExpectLoad(Load(Over(Collective::kAllToAll, 4, 1)), 0, 0, 3, 3.0 / 4);
  ExpectLoad(Load(Over(Collective::kAllToAll, 4, 4)), 3, 3.0 / 4, 0, 0);
}

TEST(LinkLoadTest, GathersOnOneNodeAreAlikeByEveryRoute) {
  for (const GatherRoute route : kGatherRoutes) {
    ExpectLoad(Load(Over(Collective::kAllGather, 8, 8), route), 7, 7.0 / 8, 0, 0);
    ExpectLoad(Load(Over(Collective::kReduceScatter, 8, 8), route), 7, 7.0 / 8, 0, 0);
    ExpectLoad(Load(Over(Collective::kAllReduce, 8, 8), route), 14, 14.0 / 8, 0, 0);
    ExpectLoad(Load(Over(Collective::kAllGather, 4, 1), route), 0, 0, 3, 3.0 / 4);
  }
}

TEST(LinkLoadTest, AnAllReduceIsOneCallByEveryRoute) {
  for (const GatherRoute route : kGatherRoutes) {
    for (const auto& [size, ranks_per_node] : {std::pair(8, 8), std::pair(4, 1), std::pair(16, 8)}) {
      const LinkLoad reduced = Load(Over(Collective::kAllReduce, size, ranks_per_node), route);
      const LinkLoad gathered = Load(Over(Collective::kAllGather, size, ranks_per_node), route);
      EXPECT_EQ(reduced.starts, 1);
      EXPECT_EQ(reduced.local_share, gathered.local_share);
      for (const size_t link : {kIntra, kInter}) {
        EXPECT_DOUBLE_EQ(reduced.steps[link], 2 * gathered.steps[link]);
        EXPECT_DOUBLE_EQ(reduced.shares[link], 2 * gathered.shares[link]);
      }
    }
  }
}

TEST(LinkLoadTest, GathersOverNodesByRoute) {
  const CollectiveKey key = Over(Collective::kAllGather, 16, 8);
  ExpectLoad(Load(key, GatherRoute::kDirect), 7, 7.0 / 16, 8, 8.0 / 16);
  // 16 links, 2 of them between nodes: a chunk passes 15, the slowest both of these.
  ExpectLoad(Load(key, GatherRoute::kRing), 13, 15.0 / 16, 2, 15.0 / 16);
  // Between nodes each of the 8 places gathers its eighth of 2 halves, inside the node 8 eighths.
  ExpectLoad(Load(key, GatherRoute::kHierarchical), 7, 7.0 / 8, 1, 1.0 / 2 / 8);
}

// Follows every chunk around a ring of n ranks.
TEST(LinkLoadTest, ARingAsItsChunksWalk) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 2000; ++round) {
    const int per_node = 1 + static_cast<int>(random() % 8), nodes = 1 + static_cast<int>(random() % 8);
    const int ranks = per_node * nodes;
    if (ranks == 1) continue;
    int most_crossings = 0;
    std::vector<int> chunks_on_link(ranks);
    for (int first = 0; first < ranks; ++first) {
      int crossings = 0;
      for (int step = 0; step + 1 < ranks; ++step) {
        const int from = (first + step) % ranks, to = (from + 1) % ranks;
        crossings += from / per_node != to / per_node;
        ++chunks_on_link[from];
      }
      most_crossings = std::max(most_crossings, crossings);
    }
    const LinkLoad load = Load(Over(Collective::kReduceScatter, ranks, per_node), GatherRoute::kRing);
    EXPECT_DOUBLE_EQ(load.steps[kInter], most_crossings);
    EXPECT_DOUBLE_EQ(load.steps[kIntra] + load.steps[kInter], ranks - 1);
    const double busiest = *std::ranges::max_element(chunks_on_link);
    EXPECT_DOUBLE_EQ(load.shares[kInter], nodes > 1 ? busiest / ranks : 0);
    EXPECT_DOUBLE_EQ(load.shares[kIntra], per_node > 1 ? busiest / ranks : 0);
  }
}

TEST(LinkLoadTest, OtherAlgorithmsAsTheirPhasesSay) {
  const auto load = [](AllToAllAlgorithm algorithm) { return Load(Over(Collective::kAllToAll, 16, 8, algorithm)); };
  // The leader gets 7 blocks of its own and 7 · 8 for the other node, which has 8 ranks; then 64 blocks pass in one
  // message; then it sends 8 blocks to each of 7.
  ExpectLoad(load(AllToAllAlgorithm::kHier1d), 7 + 56 + 7, (7 + 56 + 56) / 16.0, 1, 64 / 16.0);
  // 7 blocks to stay and 7 to go on, then one message of 8.
  ExpectLoad(load(AllToAllAlgorithm::kHier2d), 14, 14 / 16.0, 1, 8 / 16.0);
  ExpectLoad(load(AllToAllAlgorithm::kPipe), 7, 7 / 16.0, 8, 8 / 16.0);
  EXPECT_EQ(load(AllToAllAlgorithm::kHier1d).starts, 3);
  EXPECT_EQ(load(AllToAllAlgorithm::kPipe).starts, 2);
}

TEST(LinkLoadTest, OneRankIsFreeAndTheUncountableAbsent) {
  EXPECT_EQ(Load(Over(Collective::kAllReduce, 1, 1)), LinkLoad());
  CollectiveKey gathering = Over(Collective::kAllToAllAllGather, 8, 8);
  gathering.gather_group_size = gathering.shards = 2;
  EXPECT_FALSE(LoadOf(gathering, GatherRoute::kDirect));
  EXPECT_FALSE(LoadOf(Over(Collective::kAllToAll, 8, 8, AllToAllAlgorithm::kHier2d), GatherRoute::kDirect));
  EXPECT_FALSE(LoadOf(Over(Collective::kAllToAll, 9, 8, AllToAllAlgorithm::kHier2d), GatherRoute::kDirect));
  EXPECT_FALSE(LoadOf(Over(Collective::kAllToAll, 1 << 20, 8, AllToAllAlgorithm::kHier2d), GatherRoute::kDirect));
}

}  // namespace
}  // namespace moeplan
