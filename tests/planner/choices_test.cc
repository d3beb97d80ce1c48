#include "planner/rules/choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "models/schedule/schedules.h"
#include "models/timeline/price.h"
#include "models/timeline/timeline.h"
#include "planner/rules/monta.h"
#include "planner/rules/parm.h"
#include "planner/rules/schemoe.h"
#include "planner/search/candidate.h"
#include "tests/planner/by_hand.h"
#include "tests/planner/contract_files.h"

namespace moeplan::planner {
namespace {

std::optional<Knobs> Of(const std::vector<PaperChoice>& choices, const std::string& paper) {
  const auto found = std::ranges::find(choices, paper, &PaperChoice::paper);
  return found == choices.end() ? std::nullopt : std::optional(found->knobs);
}

// Two nodes of two GPUs without tensor parallelism: all four exchange, and experts take about as long.
constexpr Cluster kTwoByTwo = {.nodes = 2, .gpus_per_node = 2};

Workload ExpertParallelLayer() {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 4096,
                    .model_dim = 1024,
                    .hidden_dim = 4096,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 1};
  workload.layout = {.expert_parallel = 4};
  workload.min_chunk_bytes = 1024;
  return workload;
}

Profile ExpertParallelProfile(double start_s) {
  Profile profile;
  profile.cluster = kTwoByTwo;
  CollectiveKey pipe = Over(Collective::kAllToAll, {4, 2});
  pipe.algorithm = AllToAllAlgorithm::kPipe;
  profile.collectives = {Line(Over(Collective::kAllToAll, {4, 2}), start_s, 1e-9), Line(pipe, start_s, 1e-9)};
  profile.kernels = {Line(Kernel::kExpertGemm, start_s, 1e-13)};
  return profile;
}

TEST(ChoicesTest, AreTheAnswersOfTheRules) {
  const Profile profile = ExampleProfile();
  const Workload workload = Resolved(ExampleWorkload(), profile.cluster);
  const std::vector<PaperChoice> choices = ChoicesOfPapers(workload, profile);
  PriceNotes notes;
  const auto parm = ParmRule(workload, profile, notes);
  ASSERT_TRUE(parm.ok() && Of(choices, "parm"));
  EXPECT_EQ(Of(choices, "parm")->family, parm->choice);
  EXPECT_EQ(Of(choices, "parm")->overlapped_gather, parm->choice == Family::kParmS2);
  const auto monta = MontaRule(workload, profile, notes);
  ASSERT_TRUE(monta.ok() && Of(choices, "monta"));
  EXPECT_EQ(Of(choices, "monta")->family, monta->choice);
  EXPECT_EQ(Of(choices, "monta")->chunks, monta->choice == Family::kMontaO2   ? monta->o2->chunks
                                          : monta->choice == Family::kMontaO3 ? monta->o3->chunks
                                                                              : 1);
}

TEST(ChoicesTest, SchemoeTakesItsRsPiecesByPipe) {
  const Profile profile = ExpertParallelProfile(1e-5);
  const Workload workload = Resolved(ExpertParallelLayer(), profile.cluster);
  const std::optional<Knobs> knobs = Of(ChoicesOfPapers(workload, profile), "schemoe");
  PriceNotes notes;
  const auto rule = SchemoeRule(workload, profile, notes);
  ASSERT_TRUE(rule.ok() && knobs);
  EXPECT_EQ(*knobs, (Knobs{.family = Family::kPipeline,
                           .partition_degree = rule->partition_degree,
                           .all_to_all = AllToAllAlgorithm::kPipe}));
}

// In the way of Lancet's own cost model: pieces of all-to-all, experts and all-to-all, the exchanges on one stream.
double PipelineS(int pieces, const Workload& workload, const Profile& profile) {
  const auto graph =
      BuildSchedule({.family = Family::kPipeline, .partition_degree = pieces}, workload, profile.cluster);
  EXPECT_TRUE(graph.ok());
  return MakeCandidate({}, *graph, PriceGraph(*graph, profile), 0).time_s();
}

TEST(ChoicesTest, ACutRangeHasThePiecesThatPlayFastest) {
  for (const double start_s : {1e-7, 1e-5, 1e-4, 4e-4, 2e-3, 1e-2}) {
    const Profile profile = ExpertParallelProfile(start_s);
    const Workload workload = Resolved(ExpertParallelLayer(), profile.cluster);
    const std::optional<Knobs> knobs = Of(ChoicesOfPapers(workload, profile), kCutRange);
    ASSERT_TRUE(knobs) << start_s;
    EXPECT_EQ(knobs->family, Family::kPipeline);
    double fastest_s = std::numeric_limits<double>::infinity();
    for (int pieces = 1; pieces <= MaxPieces(Family::kPipeline, workload); ++pieces) {
      fastest_s = std::min(fastest_s, PipelineS(pieces, workload, profile));
    }
    EXPECT_NEAR(PipelineS(knobs->partition_degree, workload, profile), fastest_s, 1e-9 * fastest_s) << start_s;
  }
}

TEST(ChoicesTest, MontaHasNoneWhereShardsAreNotTensorRanks) {
  Profile profile = ExpertParallelProfile(1e-5);
  profile.collectives.push_back(Line(Over(Collective::kAllGather, {2, 2}), 1e-5, 1e-10));
  Workload workload = ExpertParallelLayer();
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 4};
  workload = Resolved(workload, profile.cluster);
  PriceNotes notes;
  ASSERT_TRUE(MontaRule(workload, profile, notes).ok());
  EXPECT_FALSE(Of(ChoicesOfPapers(workload, profile), "monta"));
  EXPECT_TRUE(Of(ChoicesOfPapers(workload, profile), "parm"));
}

TEST(ChoicesTest, WhatDoesNotFitIsNotThere) {
  Profile profile = ExpertParallelProfile(1e-5);
  const Workload workload = Resolved(ExpertParallelLayer(), profile.cluster);
  EXPECT_FALSE(ChoicesOfPapers(workload, profile).empty());
  profile.cluster.device_memory_bytes = 1e6;
  EXPECT_TRUE(ChoicesOfPapers(workload, profile).empty());
}

}  // namespace
}  // namespace moeplan::planner
