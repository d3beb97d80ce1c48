#include "planner/rules/schemoe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "tests/planner/by_hand.h"
#include "tests/planner/chunk_order.h"
#include "tests/planner/contract_files.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Lane kComp = Lane::kCompute, kComm = Lane::kCommunication;

// ---- OptSche.

TEST(OptScheTest, IsTheOrderOfTheoremOne) {
  const std::vector<ChunkStage> stages = {{"C1", kComp, 1}, {"A1", kComm, 1}, {"D1", kComp, 1}, {"E", kComp, 1},
                                          {"C2", kComp, 1}, {"A2", kComm, 1}, {"D2", kComp, 1}};
  std::map<Lane, std::vector<std::string>> order;
  for (const auto& [stage, chunk] : OptSche(stages, 2)) {
    order[stages[stage].lane].push_back(stages[stage].name + "." + std::to_string(chunk + 1));
  }
  EXPECT_THAT(order[kComp], ElementsAre("C1.1", "C1.2", "D1.1", "E.1", "C2.1", "D1.2", "E.2", "C2.2", "D2.1", "D2.2"));
  EXPECT_THAT(order[kComm], ElementsAre("A1.1", "A1.2", "A2.1", "A2.2"));
  // Compute 0-2 C1, 2-5 and 5-8 (D1 E C2), 8-9 and 9-10 D2; communication 1-3 A1, 5-6 and 8-9 A2.
  EXPECT_EQ(PlayOrder(stages, 2, OptSche(stages, 2)).time_s, 10);
}

TEST(OptScheTest, IsNotOptimalWhereTheCodecsDiffer) {
  // C1 = 1, A1 = 0.5, A2 = 1, r = 2. OptSche: C1 0-2; A1.1 1-1.5, A1.2 2-2.5; E.1 waits for C1.2; A2 2.5-4.5.
  const std::vector<ChunkStage> stages = {{"C1", kComp, 1}, {"A1", kComm, 0.5}, {"D1", kComp, 0}, {"E", kComp, 0},
                                          {"C2", kComp, 0}, {"A2", kComm, 1},   {"D2", kComp, 0}};
  const StageOrder order = OptSche(stages, 2);
  EXPECT_EQ(PlayOrder(stages, 2, order).time_s, 4.5);
  EXPECT_EQ(SearchOrder(stages, 2, order, 1000).time_s, 4);
}

// ---- The contract.

// The end of the timeline in which each stream runs its tasks in the order of `names`.
double ReplayS(const std::vector<std::string>& names, const std::map<std::string, double>& time_s) {
  const std::vector<std::string> stages = {"C1", "A1", "D1", "E", "C2", "A2", "D2"};
  std::map<std::string, double> end_s;  // Of what has run.
  std::map<bool, double> free_s;        // Of the stream that communicates, and of the other one.
  std::map<bool, std::vector<std::string>> waiting;
  for (const std::string& name : names) waiting[name[0] == 'A'].push_back(name);
  while (end_s.size() < names.size()) {
    const size_t before = end_s.size();
    for (auto& [communicates, queue] : waiting) {
      if (queue.empty()) continue;
      const std::string name = queue.front(), stage = name.substr(0, name.find('.'));
      double ready_s = free_s[communicates];
      bool ready = true;
      for (auto earlier = stages.begin(); *earlier != stage; ++earlier) {
        const std::string of_chunk = *earlier + name.substr(name.find('.'));
        if (std::ranges::find(names, of_chunk) == names.end()) continue;
        ready = ready && end_s.contains(of_chunk);
        if (ready) ready_s = std::max(ready_s, end_s[of_chunk]);
      }
      if (!ready) continue;
      free_s[communicates] = end_s[name] = ready_s + time_s.at(stage);
      queue.erase(queue.begin());
    }
    if (end_s.size() == before) {
      ADD_FAILURE() << "each stream waits for the other";
      return 0;
    }
  }
  return std::max(free_s[false], free_s[true]);
}

TEST(SchemoeTest, TheContractsExampleGivesItsNumbers) {
  const auto expected = ReadContractFile("expected.example.json")["rules"]["schemoe"];
  const Profile profile = ExampleProfile();
  PriceNotes notes;
  const auto answer = SchemoeRule(Resolved(ExampleWorkload(), profile.cluster), profile, notes);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->partition_degree, expected["partitionDegree"].get<int>());
  ExpectAsPrinted(answer->opt_sche_time_s, expected["optScheTimeS"]);
  ExpectAsPrinted(answer->optimal_time_s, expected["optimalTimeS"]);

  // Each task once, those of the way back, which has no codec, left out: 5 tasks of 4 chunks. S/r = 2·8192·8192·2/4
  // bytes, half of it on the wire there; an all-to-all of two ranks is half of what the efficiencies say of 25 GB/s.
  const double bytes = 67108864, flops = 2.0 * 3 * (bytes / 2) * 28672;
  const CostModel& all_to_all = profile.collectives[0].model;
  EXPECT_EQ(answer->order.size(), 20u);
  EXPECT_NEAR(ReplayS(answer->order, {{"C1", 4e-6 + 1.1e-12 * bytes},
                                      {"A1", TimeS(all_to_all.curve, bytes / 2, 0.5)},
                                      {"D1", 4e-6 + 1.3e-12 * bytes},
                                      {"E", 2e-5 + 5.1e-15 * flops},
                                      {"A2", TimeS(all_to_all.curve, bytes, 0.5)}}),
              answer->optimal_time_s, 1e-12);
}

// ---- Hand-worked: one node of 4, EP 2 over ESP 2. S = k·f·B·L·M·bpe = 2·0.5·1·100·10·bpe = 1000·bpe bytes; H = 20, so
// 2·2·1000·20 = 80000 flops.

Workload SmallWorkload(int bytes_per_element) {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 100,
                    .model_dim = 10,
                    .hidden_dim = 20,
                    .experts = 2,
                    .top_k = 2,
                    .capacity_factor = 0.5,
                    .bytes_per_element = bytes_per_element};
  workload.layout = {.tensor_parallel = 1, .expert_parallel = 2, .expert_sharding_parallel = 2};
  workload.min_chunk_bytes = 1e9;  // Plays no part.
  return workload;
}

Profile SmallProfile(AlphaBeta all_to_all, AlphaBeta gemm, std::vector<KernelModel> codecs = {}) {
  Profile profile;
  profile.cluster = {.nodes = 1, .gpus_per_node = 4};
  profile.collectives = {{Over(Collective::kAllToAll, {2, 2}), MakeCostModel(all_to_all)}};
  profile.kernels = std::move(codecs);
  profile.kernels.push_back({{.kernel = Kernel::kExpertGemm}, MakeCostModel(gemm)});
  return profile;
}

StatusOr<SchemoeAnswer> Answer(const Workload& workload, const Profile& profile) {
  PriceNotes notes;
  return SchemoeRule(Resolved(workload, profile.cluster), profile, notes);
}

TEST(SchemoeTest, CodecsAreChargedOnAllBytesAndAllToAllsOnWhatTheyLeave) {
  // S = 4000 bytes. FP8 there: 4 + 1000 + 8; the experts: 80; FP16 back: 12 + 2000 + 20.
  Workload workload = SmallWorkload(/*bytes_per_element=*/4);
  workload.dispatch_codec = Codec::kFp8;
  workload.combine_codec = Codec::kFp16;
  workload.max_partition_degree = 1;
  const auto answer =
      Answer(workload, SmallProfile({0, 1}, {0, 1e-3},
                                    {Line(Kernel::kEncodeFp8, 0, 1e-3), Line(Kernel::kDecodeFp8, 0, 2e-3),
                                     Line(Kernel::kEncodeFp16, 0, 3e-3), Line(Kernel::kDecodeFp16, 0, 5e-3)}));
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->partition_degree, 1);
  EXPECT_NEAR(answer->opt_sche_time_s, 4 + 1000 + 8 + 80 + 12 + 2000 + 20, 1e-9);
  EXPECT_NEAR(answer->optimal_time_s, answer->opt_sche_time_s, 1e-9);
  EXPECT_THAT(answer->order, ElementsAre("C1.1", "A1.1", "D1.1", "E.1", "C2.1", "A2.1", "D2.1"));
}

TEST(SchemoeTest, TheDegreeIsThatOfTheSmallestOptScheTime) {
  // S = 4000 bytes: A = 100 + 4000/r, E = 4000/r.
  //   r = 1: 4100 + 4000 + 4100 = 12200.
  //   r = 2: A1 0-4200, E.1 2100-4100, E.2 4200-6200, A2 4200-8400.
  //   r = 3: six all-to-alls of 1433 alone are 8600; r = 4: eight of 1100, 8800; and so on.
  const auto answer = Answer(SmallWorkload(/*bytes_per_element=*/4), SmallProfile({100, 1}, {0, 0.05}));
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->partition_degree, 2);
  EXPECT_NEAR(answer->opt_sche_time_s, 8400, 1e-9);
  // No order ends before the four all-to-alls.
  EXPECT_NEAR(answer->optimal_time_s, 8400, 1e-9);
  EXPECT_THAT(answer->order, ElementsAre("A1.1", "E.1", "A1.2", "E.2", "A2.1", "A2.2"));
}

TEST(SchemoeTest, TiesKeepTheSmallerDegree) {
  // One expert rank exchanges nothing, and the experts take as long in any number of parts.
  Workload workload = SmallWorkload(/*bytes_per_element=*/4);
  workload.layout.expert_parallel = 1;
  Profile profile = SmallProfile({0, 1}, {0, 1e-3});
  profile.collectives.clear();
  const auto answer = Answer(workload, profile);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->partition_degree, 1);
  EXPECT_NEAR(answer->optimal_time_s, 80, 1e-9);
  EXPECT_THAT(answer->order, ElementsAre("E.1", "A1.1", "A2.1"));  // The first two start at 0: compute first.
}

TEST(SchemoeTest, TimesThatDifferInTheirLastDigitsTie) {
  // The same with any layer, and a start-up time that gains by less than a thousand millionth of it.
  std::mt19937_64 engine(TestSeed());
  for (int i = 0; i < 200; ++i) {
    Workload workload = SmallWorkload(/*bytes_per_element=*/4);
    workload.layout.expert_parallel = 1;
    workload.layer.sequence_length = std::uniform_int_distribution(64, 100000)(engine);
    workload.max_partition_degree = 8;
    LogLog curve;  // Times fall by 1e-11 of them from a whole layer to its eighths.
    const double least = 1e3, most = 1e15;
    for (double flops = least; flops <= most; flops *= 2) {
      curve.points.push_back({flops, flops * 1e-9 * (1 + 1e-11 * std::log(flops))});
    }
    Profile profile = SmallProfile({0, 1}, {0, 1e-3});
    profile.collectives.clear();
    for (KernelModel& entry : profile.kernels) entry.model = MakeCostModel(curve);
    const auto answer = Answer(workload, profile);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    ASSERT_EQ(answer->partition_degree, 1) << "case " << i;
  }
}

TEST(SchemoeTest, TheBestOrderStandsBesideOptSche) {
  // S = 2000 bytes, at r = 2: C1 = 1, A1 = 0.5 of half the bytes, A2 = 1 of all, nothing else to speak of.
  Workload workload = SmallWorkload(/*bytes_per_element=*/2);
  workload.dispatch_codec = Codec::kFp8;
  workload.max_partition_degree = 2;
  const auto answer = Answer(
      workload,
      SmallProfile({0, 1e-3}, {0, 1e-18}, {Line(Kernel::kEncodeFp8, 0, 1e-3), Line(Kernel::kDecodeFp8, 0, 1e-18)}));
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->partition_degree, 2);  // r = 1: 2 + 1 + 2 = 5.
  EXPECT_NEAR(answer->opt_sche_time_s, 4.5, 1e-9);
  EXPECT_NEAR(answer->optimal_time_s, 4, 1e-9);
  // The second chunk is compressed only once the first is on its way back: at 1.5 s, both streams at once.
  EXPECT_THAT(answer->order, ElementsAre("C1.1", "A1.1", "D1.1", "E.1", "C1.2", "A2.1", "A1.2", "D1.2", "E.2", "A2.2"));
}

TEST(SchemoeTest, ACodecThatChangesNothingCountsAsTheRequestSays) {
  Workload workload = SmallWorkload(/*bytes_per_element=*/2);
  workload.combine_codec = Codec::kBf16;
  workload.max_partition_degree = 1;
  const auto answer = Answer(
      workload,
      SmallProfile({0, 1e-3}, {0, 1e-18}, {Line(Kernel::kEncodeBf16, 0, 5e-4), Line(Kernel::kDecodeBf16, 0, 1e-3)}));
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_NEAR(answer->opt_sche_time_s, 2 + 1 + 2 + 2, 1e-9);  // A1, C2, A2 of as many bytes, D2.
}

TEST(SchemoeTest, WhatIsMissingIsNamedWithTheCommandThatMeasuresIt) {
  Workload workload = SmallWorkload(/*bytes_per_element=*/2);
  workload.dispatch_codec = Codec::kFp8;
  const auto without_codec = Answer(workload, SmallProfile({0, 1}, {0, 1}, {Line(Kernel::kEncodeFp8, 0, 1)}));
  ASSERT_FALSE(without_codec.ok());
  EXPECT_EQ(without_codec.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(without_codec.status().message(),
              HasSubstr("lacks DECODE_FP8 bytesPerElement 2 modelDim 10; measure with: moeplan calibrate"));

  Profile empty = SmallProfile({0, 1}, {0, 1});
  empty.collectives.clear();
  empty.kernels.clear();
  EXPECT_THAT(Answer(workload, empty).status().message(),
              AllOf(HasSubstr("ALL_TO_ALL groupSize 2 ranksPerNode 2"), HasSubstr("EXPERT_GEMM"),
                    HasSubstr("ENCODE_FP8"), HasSubstr("DECODE_FP8")));
}

TEST(SchemoeTest, WhatIsExtrapolatedIsNoted) {
  Profile profile = SmallProfile({0, 1}, {0, 1e-3});
  profile.collectives[0].model = MakeCostModel(LogLog{{{1000, 1000}, {2000, 2000}}});  // Asked at 2000/r.
  Workload workload = SmallWorkload(/*bytes_per_element=*/2);
  workload.max_partition_degree = 2;
  PriceNotes notes;
  ASSERT_TRUE(SchemoeRule(Resolved(workload, profile.cluster), profile, notes).ok());
  EXPECT_THAT(notes.Warnings(), IsEmpty());
  workload.max_partition_degree = 4;
  ASSERT_TRUE(SchemoeRule(Resolved(workload, profile.cluster), profile, notes).ok());
  EXPECT_THAT(notes.Warnings(), ElementsAre(HasSubstr("asked at 500 to 6.7e+02 bytes, measured 1000 to 2000")));
}

}  // namespace
}  // namespace moeplan::planner
