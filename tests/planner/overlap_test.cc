// What overlap is worth is said from the two steps and from the layers that it is made of.
#include "planner/advice/overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/layout/price_layout.h"
#include "planner/shipped/names.h"

namespace moeplan::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

StepQuestion QuestionOf(const std::string& model, int gpus, int expert_parallel, int global_batch = 512) {
  StepQuestion question;
  question.request.model = *NamedModel(model);
  question.request.gpus = gpus;
  question.request.global_batch = global_batch;
  question.request.sequence_length = 4096;
  question.request.as_frameworks = true;
  question.layout.expert_parallel = expert_parallel;
  question.layout.data_parallel = 0;
  return question;
}

OverlapReport ReportOf(const StepQuestion& question, const std::string& hardware) {
  const Profile profile = *HardwareProfile(hardware, question.request.gpus, question.request.model);
  auto report = ExplainOverlap(question, profile);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? *std::move(report) : OverlapReport();
}

// The step with overlap is the step without, less what is hidden; both are PriceLayout's own.
TEST(OverlapTest, ThePartsOfTheReportAreThoseOfTheSteps) {
  const StepQuestion question = QuestionOf("qwen3-30b-a3b", 64, 64);
  const Profile profile = *HardwareProfile("h100-sxm", 64, question.request.model);
  const OverlapReport report = ReportOf(question, "h100-sxm");
  ASSERT_EQ(report.refused, "");
  EXPECT_EQ(PriceLayout(question, profile)->layout.step_time_s, report.without_step.layout.step_time_s);
  EXPECT_EQ(PriceLayout(report.with, profile)->layout.step_time_s, report.with_step.layout.step_time_s);
  EXPECT_NEAR(report.gain.ratio, report.without_step.layout.step_time_s / report.with_step.layout.step_time_s, 1e-12);
  EXPECT_FALSE(report.without_step.overlap.has_value());
  ASSERT_TRUE(report.with_step.overlap.has_value());
  const OverlappedLayers& overlap = *report.with_step.overlap;
  EXPECT_EQ(overlap.layers, 48);
  // Without a pipeline all micro-batches but the first have a partner.
  EXPECT_EQ(overlap.micro_batches, 8);
  EXPECT_EQ(overlap.pairs, 7);
  const double each_s = overlap.hidden_s / overlap.pairs;
  EXPECT_NEAR(each_s,
              HiddenS(overlap.layer, overlap.layer_alone_s, overlap.layers, 1, /*delays_weight_gradients=*/false),
              1e-12);
  EXPECT_THAT(report.text, HasSubstr("7 of 8 micro-batches have a partner"));
  // Asked from the other side, it is the same.
  const OverlapReport from_with = ReportOf(report.with, "h100-sxm");
  EXPECT_EQ(from_with.text, report.text);
}

TEST(OverlapTest, WhereThereIsLittleToHideItGainsNothingAndSaysWhy) {
  // Eight ranks inside a node exchange fast.
  const OverlapReport inside = ReportOf(QuestionOf("mixtral-8x7b", 8, 8, 64), "b200");
  EXPECT_LT(inside.gain.ratio, 1.03) << inside.text;
  EXPECT_THAT(inside.text, testing::AllOf(HasSubstr("the interval does not tell that from nothing"),
                                          HasSubstr("There is little to hide: exchanges are 5.")));
  const OverlapReport across = ReportOf(QuestionOf("qwen3-30b-a3b", 64, 64), "h100-sxm");
  EXPECT_GT(across.gain.ratio, 1.05) << across.text;
  EXPECT_THAT(across.text, testing::AllOf(HasSubstr("times as fast"), Not(HasSubstr("There is little to hide"))));
  // One micro-batch has no partner.
  const OverlapReport alone = ReportOf(QuestionOf("qwen3-30b-a3b", 64, 64, 64), "h100-sxm");
  EXPECT_THAT(alone.text, testing::AllOf(HasSubstr("gain nothing"), HasSubstr("No micro-batch has a partner")));
}

TEST(OverlapTest, WhatForbidsItIsSaid) {
  StepQuestion full = QuestionOf("qwen3-30b-a3b", 64, 64);
  full.request.recompute = Recompute::kFull;
  const OverlapReport refused = ReportOf(full, "h100-sxm");
  EXPECT_THAT(refused.text,
              testing::AllOf(HasSubstr("cannot run beside another micro-batch here"), HasSubstr("recompute FULL")));
  EXPECT_NE(refused.refused, "");
  // A pipeline needs virtual stages for it.
  StepQuestion staged = QuestionOf("qwen3-30b-a3b", 64, 8);
  staged.layout.pipeline_parallel = 4;
  const OverlapReport report = ReportOf(staged, "h100-sxm");
  EXPECT_EQ(report.with.request.virtual_stages, 2);
  EXPECT_THAT(report.text, HasSubstr("which need 2 virtual stages"));
  const StepQuestion dense = QuestionOf("llama3-8b", 8, 1);
  const auto none = ExplainOverlap(dense, *HardwareProfile("h100-sxm", 8, dense.request.model));
  EXPECT_THAT(none.status().message(), HasSubstr("model: found no experts"));
}

TEST(OverlapTest, TheTimelineIsTheGraphPlayed) {
  const OverlapReport report = ReportOf(QuestionOf("qwen3-30b-a3b", 64, 64), "h100-sxm");
  const OverlappedLayers& overlap = *report.with_step.overlap;
  const Timeline timeline = OverlapTimeline(overlap, 3);
  double end_s = 0;
  for (const TaskTiming& task : timeline) end_s = std::max(end_s, task.end_s);
  EXPECT_NEAR(end_s, TwoBatchesS(overlap.layer, 3, false), 1e-12);
  EXPECT_EQ(std::ranges::count_if(timeline, [](const TaskTiming& task) { return task.stream != StreamKind::kCompute; }),
            12);
}

}  // namespace
}  // namespace moeplan::planner
