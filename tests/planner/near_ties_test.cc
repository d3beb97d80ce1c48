// A candidate that is faster by half a percent than all that were tried before is found: a floor that is 1 % too high
// would rule it out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "models/measurement/needs.h"
#include "models/schedule/schedules.h"
#include "planner/search/plan_layer.h"
#include "tests/planner/by_hand.h"

namespace moeplan::planner {
namespace {

constexpr Cluster kTwoByTwo = {.nodes = 2, .gpus_per_node = 2};

// A forward pass over four ranks of one expert each in which all-to-alls take all the time: each of the whole layer's
// has kExchangeBytes.
constexpr double kExchangeBytes = 512 * 2 * 64 * 4;  // Tokens, experts of a token, elements, bytes.
Workload ExchangesAlone() {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 512,
                    .model_dim = 64,
                    .hidden_dim = 256,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 1,
                    .bytes_per_element = 4};
  workload.layout = {.expert_parallel = 4};
  workload.min_chunk_bytes = 64;
  workload.max_chunks = workload.max_partition_degree = 2;
  workload.phase = Phase::kForward;
  return Resolved(workload, kTwoByTwo);
}

// The curve of an all-to-all: what a share of those bytes takes. All else takes no time to speak of; of codecs there is
// only BF16.
struct ExchangeTime {
  double share = 0, time_s = 0;
};
Profile OfExchangeTimes(Workload workload, const std::vector<ExchangeTime>& times) {
  LogLog curve;
  for (const auto& [share, time_s] : times) curve.points.push_back({share * kExchangeBytes, time_s});
  const CostModel quick = MakeCostModel(AlphaBeta{1e-12, 0});
  workload.allow_lossy = false;
  Profile profile{.cluster = kTwoByTwo};
  std::set<CostKey> keys;
  for (const Need& need : NeedsOf({workload}, profile.cluster)) keys.insert(need.key);
  for (const CostKey& key : keys) {
    if (const auto* kernel = std::get_if<KernelKey>(&key)) {
      profile.kernels.push_back({*kernel, quick});
    } else if (const auto& one = std::get<CollectiveKey>(key); one.algorithm == AllToAllAlgorithm::kDirect) {
      profile.collectives.push_back({one, MakeCostModel(curve)});
    }
  }
  for (const Kernel kernel : {EncodeKernel(Codec::kBf16), DecodeKernel(Codec::kBf16)}) {
    profile.kernels.push_back({{.kernel = kernel}, quick});
  }
  return profile;
}

// The best plan, whose two all-to-alls take 1.99 s; what is not of its kind takes 2 s or longer.
Plan PlanOfLessThanTwoSeconds(const Workload& workload, const std::vector<ExchangeTime>& times) {
  const auto answer = PlanLayer(workload, OfExchangeTimes(workload, times), {.rules = false});
  EXPECT_TRUE(answer.ok()) << answer.status().message();
  if (!answer.ok()) return {};
  EXPECT_EQ(answer->search.stop_reason, StopReason::kProvedBest);
  EXPECT_NEAR(answer->search.time_floor_s, 1.99, 1e-6);
  EXPECT_NEAR(answer->candidates.front().predicted_time_s, 1.99, 1e-6);
  return answer->candidates.front();
}

TEST(NearTiesTest, ACodecThatGainsHalfAPercentIsFound) {
  Workload workload = ExchangesAlone();
  workload.allow_lossy = true;
  // Whole, two all-to-alls take 2 s. In BF16 of four-byte elements they have half the bytes, 2 · 0.995 s. Halves of
  // them take longer.
  const Plan plan = PlanOfLessThanTwoSeconds(workload, {{0.25, 3}, {0.5, 0.995}, {1, 1}});
  EXPECT_EQ(plan.knobs.dispatch_codec, Codec::kBf16);
  EXPECT_EQ(plan.knobs.combine_codec, Codec::kBf16);
  EXPECT_EQ(PiecesOf(plan.knobs), 1);
}

TEST(NearTiesTest, ACodecThatGainsHalfAPercentInTwoPiecesIsFound) {
  Workload workload = ExchangesAlone();
  workload.allow_lossy = true;
  // Half of the bytes take longer than all of them, so that neither a codec nor two pieces alone are of use; both leave
  // four all-to-alls of a quarter.
  const Plan plan = PlanOfLessThanTwoSeconds(workload, {{0.25, 1.99 / 4}, {0.5, 2}, {1, 1}});
  EXPECT_EQ(plan.knobs.dispatch_codec, Codec::kBf16);
  EXPECT_EQ(plan.knobs.combine_codec, Codec::kBf16);
  EXPECT_EQ(PiecesOf(plan.knobs), 2);
}

TEST(NearTiesTest, UnequalChunksThatGainHalfAPercentAreFound) {
  // Three and five eighths take 0.995 s together, halves 2 · 0.7 s, and less than three eighths as long as the whole.
  const Plan plan = PlanOfLessThanTwoSeconds(ExchangesAlone(),
                                             {{0.25, 1}, {0.375, 0.4}, {0.5, 0.7}, {0.625, 0.595}, {0.75, 1}, {1, 1}});
  EXPECT_THAT(plan.knobs.chunk_shares, ::testing::UnorderedElementsAre(0.375, 0.625));
}

}  // namespace
}  // namespace moeplan::planner
