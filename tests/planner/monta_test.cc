#include "planner/rules/monta.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "planner/ties.h"
#include "tests/planner/by_hand.h"
#include "tests/planner/contract_files.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MontaTest, TheContractsExampleGivesItsNumbers) {
  const auto expected = ReadContractFile("expected.example.json")["rules"]["monta"];
  const Profile profile = ExampleProfile();
  PriceNotes notes;
  const auto answer = MontaRule(Resolved(ExampleWorkload(), profile.cluster), profile, notes);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  ASSERT_TRUE(answer->o2 && answer->o3);
  ExpectAsPrinted(answer->t_baseline_s, expected["tBaselineS"]);
  ExpectAsPrinted(answer->o1_time_s, expected["o1"]["timeS"]);
  ExpectAsPrinted(answer->o2->time_s, expected["o2"]["timeS"]);
  EXPECT_EQ(answer->o2->chunks, expected["o2"]["chunks"].get<int>());
  ExpectAsPrinted(answer->o3->time_s, expected["o3"]["timeS"]);
  EXPECT_EQ(answer->o3->chunks, expected["o3"]["chunks"].get<int>());
  EXPECT_EQ(Name(answer->choice), expected["choice"].get<std::string>());
}

// ---- Table 8: I = 256e6 bytes, 25 and 200 GB/s, e = 2, t = 8, N = 4.

constexpr GroupShape kExperts = {2, 1};  // e = 2 over two nodes.
constexpr GroupShape kTensor = {8, 8};   // t = 8 within a node.
constexpr Cluster kTwoNodesOfEight = {.nodes = 2, .gpus_per_node = 8};

// The efficiencies that the table prints beside each volume. The copy has no volume of its own there: 64e6 bytes in
// 0.05 ms at the printed 80 % make B3 = 64e6 / (0.8 · 0.05e-3) = 1.6e12 bytes/s.
Profile TableEightProfile() {
  Profile profile;
  profile.cluster = kTwoNodesOfEight;
  profile.collectives = {
      {Over(Collective::kAllToAll, kExperts),
       MakeCostModel(Efficiency{25e9, {{8e6, .427}, {32e6, .633}, {256e6, .741}}})},
      {Over(Collective::kAllGather, kTensor), MakeCostModel(Efficiency{200e9, {{64e6, .726}, {256e6, .776}}})},
  };
  profile.kernels = {{{.kernel = Kernel::kDeviceCopy}, MakeCostModel(Efficiency{1.6e12, {{64e6, .8}}})}};
  return profile;
}

// I = B·L·M·bpe = 1·8000·16000·2 = 256e6. Chunks of at least 8e6 = I/(4·8) bytes: N is 1 to 4.
Workload TableEightWorkload() {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 8000,
                    .model_dim = 16000,
                    .hidden_dim = 8,
                    .experts = 2,
                    .top_k = 2,
                    .capacity_factor = 1.0};
  workload.layout = {.tensor_parallel = 8, .expert_parallel = 2, .expert_sharding_parallel = 8};
  workload.min_chunk_bytes = 8e6;
  return workload;
}

StatusOr<MontaAnswer> Answer(const Workload& workload, const Profile& profile) {
  PriceNotes notes;
  return MontaRule(Resolved(workload, profile.cluster), profile, notes);
}

TEST(MontaTest, TableEightComesOutOfItsInputs) {
  constexpr double kPrinted = 2e-3;  // The table's rounding.
  const Profile profile = TableEightProfile();
  const auto time_ms = [&](int entry, double bytes, int ranks) {
    return 1e3 * TimeS(profile.collectives[entry].model.curve, bytes, BusFactor(Collective::kAllToAll, ranks));
  };
  EXPECT_NEAR(time_ms(0, 8e6, 2), 0.375, kPrinted * 0.375);   // AA of a chunk
  EXPECT_NEAR(time_ms(1, 64e6, 8), 0.386, kPrinted * 0.386);  // AG of a chunk
  EXPECT_NEAR(1e3 * TimeS(profile.kernels[0].model.curve, 64e6, 1), 0.05, kPrinted * 0.05);

  const auto answer = Answer(TableEightWorkload(), profile);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_NEAR(1e3 * answer->t_baseline_s, 6.910, kPrinted * 6.910);
  EXPECT_NEAR(1e3 * answer->o1_time_s, 1.011 + 1.443, kPrinted * 2.454);
  // O2 at N = 4: the gather and copy are longest: 0.375 + 4·(0.386 + 0.05) = 2.119 ms.
  ASSERT_TRUE(answer->o2 && answer->o3);
  EXPECT_EQ(answer->o2->chunks, 4);
  EXPECT_NEAR(1e3 * answer->o2->time_s, 2.119, kPrinted * 2.119);
  // O3 at N = 4: 0.375 + 4·0.386 + 0.05 = 1.969 ms, so the rule takes O3.
  EXPECT_EQ(answer->o3->chunks, 4);
  EXPECT_NEAR(1e3 * answer->o3->time_s, 1.969, kPrinted * 1.969);
  EXPECT_EQ(answer->choice, Family::kMontaO3);
}

// ---- Hand-worked: one node of 4, t = 2, e = 2, I = 1·100·10·2 = 2000 bytes, 1 s per byte unless said.

Workload SmallWorkload() {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 100,
                    .model_dim = 10,
                    .hidden_dim = 20,
                    .experts = 2,
                    .top_k = 2,
                    .capacity_factor = 4.0};  // k·f = 8 plays no part.
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
  workload.min_chunk_bytes = 1;
  workload.max_chunks = 4;
  return workload;
}

// EP steps over the two shards of a node of four: shape (2, 2), as MP.
Profile SmallProfile(AlphaBeta all_to_all, AlphaBeta all_gather, AlphaBeta copy) {
  Profile profile;
  profile.cluster = {.nodes = 1, .gpus_per_node = 4};
  profile.collectives = {{Over(Collective::kAllToAll, {2, 2}), MakeCostModel(all_to_all)},
                         {Over(Collective::kAllGather, {2, 2}), MakeCostModel(all_gather)}};
  profile.kernels = {{{.kernel = Kernel::kDeviceCopy}, MakeCostModel(copy)}};
  return profile;
}

TEST(MontaTest, TheChunkCountOfTheSmallestTimeIsReturnedNotTheLast) {
  // AA = 100 + 1000/N, AG = 2000/N, no copy to speak of. O2 = AA + N·AG for AA < AG: 2100 + 1000/N while N < 10; to
  // make more chunks costlier, AG = 400 + 2000/N: O2 = 100 + 1000/N + 400·N + 2000 = 3500, 3400, 3633, 3950.
  const auto answer = Answer(SmallWorkload(), SmallProfile({100, 1}, {400, 1}, {0, 1e-12}));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->o2->chunks, 2);
  EXPECT_NEAR(answer->o2->time_s, 3400, 1e-6);
  EXPECT_NEAR(answer->t_baseline_s, 2100, 1e-9);      // AA(I)
  EXPECT_NEAR(answer->o1_time_s, 1100 + 2400, 1e-9);  // AA(I/t) + AG(I)
}

TEST(MontaTest, TiesKeepFewerChunksAndTheSimplerStrategy) {
  // No gather (t = 1) and a copy too cheap to show in 2000 s: O2 = N·AA(I/N) = I for every N.
  Workload workload = SmallWorkload();
  workload.layout = {.tensor_parallel = 1, .expert_parallel = 2, .expert_sharding_parallel = 1};
  const auto answer = Answer(workload, SmallProfile({0, 1}, {0, 1}, {0, 1e-30}));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->o2->chunks, 1);
  EXPECT_EQ(answer->o1_time_s, 2000);
  EXPECT_EQ(answer->o2->time_s, 2000);
  EXPECT_EQ(answer->choice, Family::kMontaO1);
}

TEST(MontaTest, TimesThatDifferInTheirLastDigitsTie) {
  // As above, O2 and O3 are N · AA(I/N) = I for every N, but sums of rounded parts come out a little above or below.
  std::mt19937_64 engine(TestSeed());
  for (int i = 0; i < 1000; ++i) {
    Workload workload = SmallWorkload();
    workload.layout = {.tensor_parallel = 1, .expert_parallel = 2, .expert_sharding_parallel = 1};
    workload.layer.sequence_length = std::uniform_int_distribution(64, 100000)(engine);
    workload.max_chunks = 64;
    const double s_per_byte = std::exp(std::uniform_real_distribution(-30.0, -10.0)(engine));
    const auto answer = Answer(workload, SmallProfile({0, s_per_byte}, {0, 1}, {0, 1e-30}));
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    ASSERT_EQ(answer->o2->chunks, 1) << "case " << i;
    ASSERT_EQ(answer->o3->chunks, 1) << "case " << i;
    ASSERT_EQ(answer->choice, Family::kMontaO1) << "case " << i;
  }
}

TEST(TiesTest, TheFirstOfThoseThatTieWithTheSmallestWins) {
  EXPECT_EQ(FirstOfSmallest(std::array{1.0 + 2e-9, 1.0 + 1e-10, 1.0}), 1u);
  EXPECT_EQ(FirstOfSmallest(std::array{1.0 + 1e-10, 1.0}), 0u);
  EXPECT_EQ(FirstOfSmallest(std::array{0.0, 0.0}), 0u);
  EXPECT_EQ(FirstOfSmallest(std::array{3.0, 2.0, 1.0}), 2u);
}

TEST(MontaTest, O3CopesWithACopyThatIsTheLongestStage) {
  // AA = 1000/N, AG = 2000/N, copy 4000/N. O3 = (1000 + 2000 + 4000·N)/N = 4000 + 3000/N: at N = 4, 4750.
  const auto answer = Answer(SmallWorkload(), SmallProfile({0, 1}, {0, 1}, {0, 2}));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->o3->chunks, 4);
  EXPECT_NEAR(answer->o3->time_s, 4750, 1e-9);
}

TEST(MontaTest, O3LooksGatherAndCopyUpUnderEachOther) {
  Profile profile = SmallProfile({0, 1}, {0, 1}, {0, 0.5});
  profile.collectives.push_back(Line(Over(Collective::kAllGather, {2, 2}, Contention::kWithCopy), 0, 2));
  profile.kernels.push_back(
      {{.kernel = Kernel::kDeviceCopy, .contention = Contention::kWithAllGather}, MakeCostModel(AlphaBeta{0, 1.5})});
  const auto answer = Answer(SmallWorkload(), profile);
  ASSERT_TRUE(answer.ok());
  // At N = 4: AA 250; AG 500 alone, 1000 beside a copy; copy 250 alone, 750 beside a gather.
  EXPECT_NEAR(answer->o2->time_s, 250 + 4 * 750, 1e-9);
  EXPECT_NEAR(answer->o3->time_s, 250 + 1000 + 750 + 3 * 1000, 1e-9);
}

TEST(MontaTest, AContendedLookUpThatFallsBackIsNotedAsWhatItIs) {
  Profile profile = SmallProfile({0, 1}, {0, 1}, {0, 1});
  profile.kernels[0].model = MakeCostModel(LogLog{{{500, 500}, {1000, 1000}}});  // Asked at 2000, 1000, 667 and 500.
  PriceNotes notes;
  ASSERT_TRUE(MontaRule(Resolved(SmallWorkload(), profile.cluster), profile, notes).ok());
  EXPECT_THAT(notes.Warnings(), ElementsAre("DEVICE_COPY: asked at 2000 bytes, measured 500 to 1000; extrapolated"));
}

TEST(MontaTest, ChunksStopBelowTheSmallestMessageAllowed) {
  // I/(N·t) = 1000/N, at least 334: N is 1 or 2. More chunks would be faster.
  Workload workload = SmallWorkload();
  workload.min_chunk_bytes = 334;
  auto answer = Answer(workload, SmallProfile({0, 1}, {0, 1}, {0, 1}));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->o2->chunks, 2);
  workload.min_chunk_bytes = 333;  // 1000/3 = 333.3 is enough.
  answer = Answer(workload, SmallProfile({0, 1}, {0, 1}, {0, 1}));
  EXPECT_EQ(answer->o2->chunks, 3);
  workload.min_chunk_bytes = 1001;  // Not even one chunk.
  answer = Answer(workload, SmallProfile({0, 1}, {0, 1}, {0, 1}));
  EXPECT_FALSE(answer->o2 || answer->o3);
  EXPECT_EQ(answer->choice, Family::kMontaO1);
}

TEST(MontaTest, WithoutDeviceCopyO1IsChosenAndTheCommandNamed) {
  Profile profile = SmallProfile({0, 1}, {0, 1}, {0, 1});
  profile.kernels.clear();
  PriceNotes notes;
  const auto answer = MontaRule(Resolved(SmallWorkload(), profile.cluster), profile, notes);
  ASSERT_TRUE(answer.ok());
  EXPECT_FALSE(answer->o2 || answer->o3);
  EXPECT_EQ(answer->choice, Family::kMontaO1);
  EXPECT_THAT(notes.Warnings(),
              ElementsAre(HasSubstr("lacks DEVICE_COPY, so O2 and O3 are not judged and O1 is chosen; "
                                    "measure with: moeplan calibrate")));
}

TEST(MontaTest, ASkippedRuleNamesTheMissingKey) {
  Profile profile = SmallProfile({0, 1}, {0, 1}, {0, 1});
  profile.collectives.pop_back();
  const auto answer = Answer(SmallWorkload(), profile);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(answer.status().message(), HasSubstr("lacks ALL_GATHER groupSize 2 ranksPerNode 2; measure with"));
}

}  // namespace
}  // namespace moeplan::planner
