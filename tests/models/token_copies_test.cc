// Expected places against counts of drawn tokens and against closed cases.
#include "models/routing/token_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "tests/test_seed.h"

namespace moeplan {
namespace {

// Draws tokens as a router would that chooses evenly, and counts where their experts lie.
double CountedPlaces(const EvenRouting& routing, int places, int tokens, std::mt19937_64& random) {
  std::vector<int> groups(routing.groups);
  std::iota(groups.begin(), groups.end(), 0);
  const int of_group = routing.experts / routing.groups;
  long long found = 0;
  for (int token = 0; token < tokens; ++token) {
    std::ranges::shuffle(groups, random);
    std::vector<int> candidates;
    for (int i = 0; i < routing.groups_per_token; ++i) {
      for (int e = 0; e < of_group; ++e) candidates.push_back(groups[i] * of_group + e);
    }
    std::ranges::shuffle(candidates, random);
    std::set<int> reached;
    for (int i = 0; i < routing.top_k; ++i) reached.insert(candidates[i] / (routing.experts / places));
    found += static_cast<long long>(reached.size());
  }
  return 1.0 * found / tokens;
}

TEST(TokenCopiesTest, PlacesAreWhatDrawnTokensReach) {
  std::mt19937_64 random(TestSeed());
  constexpr int kTokens = 40000;
  for (const EvenRouting& routing : {EvenRouting{8, 2}, EvenRouting{128, 8}, EvenRouting{256, 8, 8, 4},
                                     EvenRouting{32, 4, 4, 2}, EvenRouting{64, 6, 8, 3}, EvenRouting{16, 1, 4, 1}}) {
    for (int places = 1; places <= routing.experts; places *= 2) {
      // A place is reached or not: the variance of a count is at most places / 4.
      const double error = 4 * std::sqrt(places / 4.0 / kTokens);
      EXPECT_NEAR(ExpectedPlaces(routing, places), CountedPlaces(routing, places, kTokens, random), error)
          << routing.experts << " experts, top " << routing.top_k << ", " << routing.groups_per_token << " of "
          << routing.groups << " groups, " << places << " places";
    }
  }
}

TEST(TokenCopiesTest, OnePlaceIsReachedOnceAndEachExpertIsAPlaceOfItsOwn) {
  EXPECT_DOUBLE_EQ(ExpectedPlaces({.experts = 64, .top_k = 6}, 1), 1);
  EXPECT_DOUBLE_EQ(ExpectedPlaces({.experts = 64, .top_k = 6}, 64), 6);
  EXPECT_DOUBLE_EQ(ExpectedPlaces({.experts = 64, .top_k = 64}, 16), 16);
  // All of a token's experts lie in its one group.
  EXPECT_DOUBLE_EQ(ExpectedPlaces({.experts = 64, .top_k = 8, .groups = 8, .groups_per_token = 1}, 8), 1);
}

TEST(TokenCopiesTest, ALimitThatDoesNotNestIsLeftOut) {
  const EvenRouting limited = {.experts = 24, .top_k = 4, .groups = 6, .groups_per_token = 2};
  EXPECT_DOUBLE_EQ(ExpectedPlaces(limited, 4), ExpectedPlaces({.experts = 24, .top_k = 4}, 4));
}

}  // namespace
}  // namespace moeplan
