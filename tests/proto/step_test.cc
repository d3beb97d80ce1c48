#include "proto/convert/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "models/text.h"
#include "proto/convert/layouts.h"
#include "proto/json.h"

namespace moeplan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

StatusOr<StepQuestion> Read(const std::string& json) {
  ASSIGN_OR_RETURN(const v1::StepLayout layout, StepLayoutFromJson(json, "x"));
  StepQuestion question;
  RETURN_IF_ERROR(ReadStepLayout(layout, "layout", question));
  return question;
}

TEST(StepLayoutTest, WhatIsAbsentIsAsTheContractSays) {
  const auto question = Read("{}");
  ASSERT_TRUE(question.ok()) << question.status().message();
  EXPECT_EQ(question->layout, Layout());
  EXPECT_EQ(question->micro_batch, 1);
  EXPECT_EQ(question->request.zero_stage, 1);
  EXPECT_EQ(question->request.recompute, Recompute::kNone);
  EXPECT_EQ(question->request.attention, AttentionKernel::kFlash);
  EXPECT_TRUE(question->request.sequence_parallel);
  EXPECT_EQ(question->request.capacity_factor, 1) << "dropless";
  EXPECT_EQ(question->request.context_exchange, ContextExchange::kKeysValues);
  EXPECT_TRUE(question->request.overlaps_gradients);
  EXPECT_TRUE(question->request.overlaps_shared_experts);
  EXPECT_EQ(question->schedule, std::nullopt);
  EXPECT_EQ(question->horizontal_contexts, std::nullopt) << "MoNTA's rule";
}

TEST(StepLayoutTest, WhereContextsLieIsReadWrittenAndOfARow) {
  for (const char* said : {"true", "false"}) {
    const auto question = Read(StrCat(R"({"contextParallel": 2, "horizontalContexts": )", said, "}"));
    ASSERT_TRUE(question.ok()) << question.status().message();
    ASSERT_TRUE(question->horizontal_contexts.has_value());
    EXPECT_EQ(*question->horizontal_contexts, said == std::string("true"));
    EXPECT_EQ(StepLayoutOf(*question).horizontal_contexts(), *question->horizontal_contexts);
    const auto row = Read(StrCat(R"({"layout": {"contextParallel": 2}, "horizontalContexts": )", said, "}"));
    ASSERT_TRUE(row.ok()) << row.status().message();
    EXPECT_EQ(row->horizontal_contexts, question->horizontal_contexts);
  }
  EXPECT_EQ(Read(R"({"layout": {"contextParallel": 2}})")->horizontal_contexts, std::nullopt);
  EXPECT_FALSE(StepLayoutOf({}).has_horizontal_contexts());
}

TEST(StepLayoutTest, EveryFieldIsRead) {
  const auto question = Read(R"({"tensorParallel": 2, "expertParallel": 3, "expertShardingParallel": 4,
    "contextParallel": 5, "pipelineParallel": 6, "dataParallel": 7, "microBatch": 8, "recompute": "SELECTIVE",
    "zeroStage": 2, "sequenceParallel": false, "attention": "STORED", "schedule": "MONTA_O2",
    "plan": {"chunks": 4, "partitionDegree": 1}, "capacityFactor": 1.25, "virtualStages": 2, "stages": [3, 5], "precision": "NVFP4", "dispatcher": "ALL_TO_ALL",
    "contextExchange": "ALL_TO_ALL", "overlapGradients": false,
    "overlapSharedExperts": false})");
  ASSERT_TRUE(question.ok()) << question.status().message();
  EXPECT_EQ(question->layout, (Layout{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(question->micro_batch, 8);
  EXPECT_EQ(question->request.zero_stage, 2);
  EXPECT_EQ(question->request.recompute, Recompute::kSelective);
  EXPECT_EQ(question->request.attention, AttentionKernel::kStored);
  EXPECT_FALSE(question->request.sequence_parallel);
  EXPECT_EQ(question->request.capacity_factor, 1.25);
  EXPECT_EQ(question->request.context_exchange, ContextExchange::kAllToAll);
  EXPECT_FALSE(question->request.overlaps_gradients);
  EXPECT_FALSE(question->request.overlaps_shared_experts);
  EXPECT_EQ(question->request.virtual_stages, 2);
  EXPECT_EQ(question->request.stages, (std::vector<int>{3, 5}));
  EXPECT_EQ(question->request.precision, Precision::kNvfp4);
  EXPECT_EQ(question->schedule, Family::kMontaO2);
  EXPECT_EQ(question->chunks, 4);
  EXPECT_EQ(question->partition_degree, 1);
}

TEST(StepLayoutTest, SaysHowRowsTravelAndWhatIsComputedAgain) {
  const auto question = Read(R"({"dispatcher": "HYBRID_EP", "transport": "NVSHMEM", "overlapExpertParallel": true,
      "delayWeightGradients": true, "recompute": "SELECTIVE", "recomputeModules": ["MOE_ACT", "LAYERNORM"],
      "gradientPrecision": "BF16"})");
  ASSERT_TRUE(question.ok()) << question.status().message();
  const LayoutRequest& request = question->request;
  EXPECT_EQ(request.dispatcher, Dispatcher::kHybridEp);
  EXPECT_EQ(request.transport, Transport::kNvshmem);
  EXPECT_TRUE(request.overlaps_experts && request.delays_weight_gradients);
  // Nothing else has room beside exchanges that run beside another micro-batch.
  EXPECT_FALSE(request.overlaps_shared_experts);
  EXPECT_EQ(request.recompute_modules, (RecomputeModules{RecomputeModule::kMoeAct, RecomputeModule::kLayerNorm}));
  EXPECT_EQ(request.gradient_bytes, 2);
  // And a row of a ranking says the same.
  v1::RankedLayout row;
  SetSettings(request, {}, row);
  EXPECT_EQ(row.dispatcher(), v1::Dispatcher::HYBRID_EP);
  EXPECT_EQ(row.transport(), v1::Transport::NVSHMEM);
  EXPECT_TRUE(row.overlap_expert_parallel() && row.delay_weight_gradients());
  EXPECT_EQ(row.recompute_modules_size(), 2);
  EXPECT_EQ(row.gradient_precision(), v1::GradientPrecision::BF16);
  // A ranking takes all of it, and chooses the rest.
  const auto settings = [](const char* json) {
    LayoutRequest asked;
    const Status status = ReadSettings(*StepLayoutFromJson(json, "settings"), "settings", asked);
    return status.ok() ? StrCat("dispatcher ", Name(asked.dispatcher)) : status.message();
  };
  EXPECT_EQ(settings(R"({"dispatcher": "DEEPEP", "zeroStage": 3})"), "dispatcher DEEPEP");
  EXPECT_EQ(settings(R"({"expertParallel": 8})"),
            "settings: found expertParallel, which the ranking chooses; expected none");
  EXPECT_EQ(settings(R"({"schedule": "BASELINE"})"),
            "settings: found schedule, which the ranking chooses; expected none");
  EXPECT_THAT(settings(R"({"expertImbalance": 1.5})"),
              HasSubstr("found expertImbalance, which is of the ranks of one"));
  const auto again = Read(R"({"overlapExpertParallel": true, "overlapSharedExperts": true})");
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->request.overlaps_shared_experts);
}

TEST(StepLayoutTest, WhatIsWrongIsNamed) {
  EXPECT_THAT(Read(R"({"capacityFactor": -1})").status().message(), HasSubstr("layout.capacityFactor: found -1"));
  EXPECT_THAT(Read(R"({"dataParallel": 0})").status().message(), HasSubstr("layout.dataParallel: found 0"));
  EXPECT_THAT(Read(R"({"tensorParalel": 1})").status().message(), HasSubstr("x: tensorParalel"));
  EXPECT_THAT(Read(R"({"attention": "FLSH"})").status().message(), HasSubstr("attention"));
  EXPECT_THAT(Read(R"({"plan": {"chunks": 2}})").status().message(),
              HasSubstr("layout.plan: found one without schedule beside it, expected one of the family"));
  EXPECT_THAT(Read(R"({"schedule": "PARM_S1", "plan": {"schedule": "BASELINE"}})").status().message(),
              HasSubstr("layout.plan: found a plan of BASELINE, expected one of the family that schedule names"));
  EXPECT_THAT(Read("[]").status().message(), StartsWith("x"));
}

// Lancet's passes are no family of plans: they are asked for beside those, and a plan of one cannot stand there, too.
TEST(StepLayoutTest, LancetIsAScheduleWithoutAPlan) {
  const auto read = Read(R"({"schedule": "LANCET", "microBatch": 2})");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(read->lancet);
  EXPECT_FALSE(read->schedule || read->chunks || read->partition_degree);
  EXPECT_EQ(StepLayoutOf(*read).schedule(), v1::Schedule::LANCET);
  EXPECT_FALSE(Read(R"({"schedule": "BASELINE"})")->lancet);
  EXPECT_THAT(Read(R"({"schedule": "UNSCHEDULED"})").status().message(),
              HasSubstr("layout.schedule: found UNSCHEDULED, the given order of a training graph, expected LANCET or"));
  EXPECT_THAT(Read(R"({"schedule": "LANCET", "plan": {"chunks": 2}})").status().message(),
              HasSubstr("layout.plan: found a plan of a layer, expected none beside schedule LANCET"));
  EXPECT_THAT(Read(R"({"schedule": "LANCET", "plan": {"schedule": "PARM_S1"}})").status().message(),
              HasSubstr("layout.plan: found a plan of PARM_S1, expected none beside schedule LANCET"));
  EXPECT_THAT(Read(R"({"schedule": "UNSCHEDULED"})").status().message(), HasSubstr("layout.schedule"));
  // A row under the passes is such a layout.
  RankedLayout ranked = {.layout = {2, 4, 1, 2, 2, 8}, .micro_batch = 4, .step_time_s = 1, .moe_layer_s = 1e-3};
  ranked.moe = {.family = Family::kParmS1};
  ranked.lancet = true;
  const v1::LayoutResult result = ToProto(LayoutAnswer{.layouts = {ranked}}, LayoutRequest());
  EXPECT_EQ(result.layouts(0).moe_schedule(), v1::Schedule::LANCET);
  const auto of_row = Read(ToJson(result.layouts(0)));
  ASSERT_TRUE(of_row.ok()) << of_row.status().message();
  EXPECT_TRUE(of_row->lancet);
}

TEST(StepLayoutTest, WhatPassesHideIsAnswered) {
  StepAnswer answer;
  answer.layout.moe_layer_s = 1e-3;
  answer.layout.moe.family = Family::kParmS1;
  EXPECT_FALSE(ToProto(answer, 8).has_lancet());
  answer.layout.lancet = true;
  answer.lancet = {.ranges_s = 1, .weight_gradients_s = 2, .without_step_s = 7};
  const v1::StepResult result = ToProto(answer, 8);
  EXPECT_EQ(result.moe_schedule(), v1::Schedule::LANCET);
  EXPECT_EQ(result.lancet().layer_schedule(), v1::Schedule::PARM_S1);
  EXPECT_EQ(result.lancet().ranges_s(), 1);
  EXPECT_EQ(result.lancet().weight_gradients_s(), 2);
  EXPECT_EQ(result.lancet().without_step_time_s(), 7);
}

// A layout is read as it stands, whatever another left in the question.
TEST(StepLayoutTest, NothingOfAnEarlierLayoutIsLeft) {
  StepQuestion question;
  v1::StepLayout first;
  first.set_schedule(v1::Schedule::BASELINE);
  first.mutable_plan()->set_chunks(2);
  first.set_recompute(v1::Recompute::SELECTIVE);
  first.add_recompute_modules(v1::RecomputeModule::MLP);
  ASSERT_TRUE(ReadStepLayout(first, "layout", question).ok());
  ASSERT_TRUE(ReadStepLayout({}, "against", question).ok());
  EXPECT_FALSE(question.schedule || question.chunks || question.lancet);
  EXPECT_TRUE(question.request.recompute_modules.empty());
}

// Whatever a row says is read again.
TEST(StepLayoutTest, ARowOfARankingIsALayout) {
  LayoutRequest request = {.gpus = 64, .zero_stage = 3, .recompute = Recompute::kFull};
  request.attention = AttentionKernel::kStored;
  request.context_exchange = ContextExchange::kAllToAll;
  request.overlaps_gradients = request.overlaps_shared_experts = false;
  request.sequence_parallel = false;
  request.capacity_factor = 1.5;
  for (const double moe_layer_s : {0.0, 1e-3}) {
    RankedLayout ranked = {
        .layout = {2, 4, 1, 2, 2, 8}, .micro_batch = 4, .step_time_s = 1, .moe_layer_s = moe_layer_s};
    ranked.moe = {.family = Family::kParmS2, .chunks = 1, .partition_degree = 2};
    const v1::LayoutResult result = ToProto(LayoutAnswer{.layouts = {ranked}}, request);
    const auto question = Read(ToJson(result.layouts(0)));
    ASSERT_TRUE(question.ok()) << question.status().message();
    EXPECT_EQ(question->layout, ranked.layout);
    EXPECT_EQ(question->micro_batch, 4);
    EXPECT_EQ(question->request.zero_stage, 3);
    EXPECT_EQ(question->request.recompute, Recompute::kFull);
    EXPECT_EQ(question->request.attention, AttentionKernel::kStored);
    EXPECT_EQ(question->request.context_exchange, ContextExchange::kAllToAll);
    EXPECT_FALSE(question->request.overlaps_gradients);
    EXPECT_FALSE(question->request.overlaps_shared_experts);
    EXPECT_FALSE(question->request.sequence_parallel);
    EXPECT_EQ(question->request.capacity_factor, 1.5);
    EXPECT_EQ(question->schedule.has_value(), moe_layer_s > 0);
    if (moe_layer_s == 0) continue;
    EXPECT_EQ(question->schedule, Family::kParmS2);
    EXPECT_EQ(question->chunks, 1);
    EXPECT_EQ(question->partition_degree, 2);
  }
}

}  // namespace
}  // namespace moeplan
