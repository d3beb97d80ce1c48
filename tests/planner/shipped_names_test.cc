// What ships is whole, and other people's names for it are understood.
#include "planner/shipped/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/layout/price_layout.h"
#include "planner/shipped/files.h"

namespace moeplan::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ShippedNamesTest, EveryMachineThatShipsSaysWhereItsFiguresAreFrom) {
  ASSERT_EQ(ShippedNames("hardware").size(), 9u);
  for (const std::string& name : ShippedNames("hardware")) {
    const auto hardware = HardwareOf(name);
    ASSERT_TRUE(hardware.ok()) << hardware.status().message();
    EXPECT_EQ(hardware->name, name);
    for (const HardwareFigure& figure : HardwareFigures()) {
      const Figure& value = (*hardware).*figure.value;
      EXPECT_FALSE(value.source.empty()) << name << " " << figure.name;
      EXPECT_TRUE(value.assumed || (!value.measured_by.empty() && !value.date.empty())) << name << " " << figure.name;
    }
    EXPECT_LT(hardware->network_bytes_per_s.value, hardware->all_to_all_bytes_per_s.value * 3) << name;
  }
}

TEST(ShippedNamesTest, EveryModelThatShipsHasAPriceOnEveryMachine) {
  for (const std::string& name : ShippedNames("models")) {
    const auto model = NamedModel(name);
    ASSERT_TRUE(model.ok()) << model.status().message();
    for (const std::string& machine : ShippedNames("hardware")) {
      const auto profile = HardwareProfile(machine, 16, *model);
      ASSERT_TRUE(profile.ok()) << profile.status().message();
      ASSERT_TRUE(ValidateProfile(*profile).ok()) << ValidateProfile(*profile).message();
      StepQuestion question = {.request = {.model = *model, .gpus = 16, .global_batch = 64, .sequence_length = 4096}};
      question.layout.pipeline_parallel = 2;
      const auto step = PriceLayout(question, *profile);
      ASSERT_TRUE(step.ok()) << name << " on " << machine << ": " << step.status().message();
      EXPECT_GT(step->layout.mfu, 0.01) << name << " on " << machine;
      EXPECT_LT(step->layout.mfu, 0.9) << name << " on " << machine;
    }
  }
}

TEST(ShippedNamesTest, DomainsFollowFromTheGpus) {
  const ModelConfig model = *NamedModel("mixtral-8x7b");
  const auto cluster = [&](const std::string& option, int gpus) {
    return HardwareProfile(option, gpus, model)->cluster;
  };
  EXPECT_EQ(cluster("h100-sxm", 64).nodes, 8);
  EXPECT_EQ(cluster("h100-sxm", 4).gpus_per_node, 4);
  EXPECT_EQ(cluster("gb200-nvl72", 256).gpus_per_node, 64);
  EXPECT_EQ(cluster("gb200-nvl72", 144).gpus_per_node, 72);
  EXPECT_EQ(cluster("h100-sxm:16x4", 64).nodes, 16);
  const auto error = [&](const std::string& option, int gpus) {
    return HardwareProfile(option, gpus, model).status().message();
  };
  EXPECT_THAT(error("h100-sxm:4x8", 64), HasSubstr("expected as many GPUs as asked for, 64"));
  EXPECT_THAT(error("h100-sxm:4x16", 64), HasSubstr("expected at most 8 GPUs in a domain"));
  EXPECT_THAT(error("h100-sxm:8", 64), HasSubstr("expected DOMAINSxGPUS such as 8x8"));
  EXPECT_THAT(error("h100", 64), StartsWith("hardware: found 'h100', expected one of a100-pcie, a100-sxm, b200"));
}

TEST(ShippedNamesTest, ExpertsAreGroupedProductsOfTheHardware) {
  const ModelConfig model = *NamedModel("mixtral-8x7b");
  const Profile profile = *HardwareProfile("h100-sxm", 8, model);
  StepQuestion question = {.request = {.model = model, .gpus = 8, .global_batch = 8, .sequence_length = 128}};
  question.schedule = Family::kBaseline;
  const auto moe_s = [&](Precision precision, int sequence) {
    question.request.precision = precision;
    question.request.sequence_length = sequence;
    const auto step = PriceLayout(question, profile);
    EXPECT_TRUE(step.ok()) << step.status().message();
    for (const StepPartTime& part : step->parts) {
      if (part.part == "moeLayers") return part.forward_s;
    }
    return 0.0;
  };
  // With few rows each layer's weights are read, all experts': at the full rate of the memory.
  const double weight_bytes = 2 * TotalExpertParameters(model);
  EXPECT_GE(moe_s(Precision::kBf16, 128), weight_bytes / 3.35e12);
  // With many, products in FP8 are faster.
  EXPECT_LT(moe_s(Precision::kFp8, 32768), 0.8 * moe_s(Precision::kBf16, 32768));
  // This GPU has no FP4.
  question.request.precision = Precision::kNvfp4;
  EXPECT_THAT(PriceLayout(question, profile).status().message(),
              HasSubstr("layout.precision: found NVFP4, expected BF16 or FP8: the hardware has no such products"));
}

TEST(ShippedNamesTest, NamesOfOthersAreUnderstood) {
  EXPECT_EQ(ModelMeant("Qwen3_235B_a22B"), "qwen3-235b-a22b");
  EXPECT_EQ(ModelMeant("LLAMA3.1_405B"), "llama3.1-405b");
  EXPECT_EQ(ModelMeant("DeepSeek V3 671B"), "deepseek-v3");
  EXPECT_EQ(ModelMeant("Qwen3 MoE 30B"), "qwen3-30b-a3b");
  EXPECT_EQ(ModelMeant("DeepSeekV4 Flash"), "");
  EXPECT_EQ(HardwareMeant("DGX-GB200"), "gb200-nvl72");
  EXPECT_EQ(HardwareMeant("H100 80GB SXM"), "h100-sxm");
  EXPECT_EQ(HardwareMeant("B300 (p6-b300, 16x400G EFA)"), "b300");
  EXPECT_EQ(HardwareMeant("TPU v5"), "");
  EXPECT_TRUE(MeansHybridModel("Nemotron_3_Super"));
  EXPECT_FALSE(MeansHybridModel("Mixtral-8x7B"));
}

// Between domains an all-to-all goes through each GPU's own card, the others over all cards of a domain.
TEST(HardwareProfileTest, GroupsThatCrossDomainsAreAsFastAsTheirCards) {
  const Hardware hardware = *HardwareOf("h100-sxm");
  const Profile profile = ProfileOf(hardware, 8, 8, *NamedModel("mixtral-8x7b"));
  const auto seconds_per_byte = [&](Collective collective, GroupShape group) {
    return std::get<AlphaBeta>(
               Find(profile, CollectiveKey{.collective = collective, .group = group, .bytes_per_element = 2})->curve)
        .beta_s_per_unit;
  };
  EXPECT_DOUBLE_EQ(seconds_per_byte(Collective::kAllToAll, {8, 8}), 7.0 / 8 / 277e9);
  EXPECT_DOUBLE_EQ(seconds_per_byte(Collective::kAllToAll, {16, 8}), 8.0 / 16 / (50e9 * 0.85));
  EXPECT_DOUBLE_EQ(seconds_per_byte(Collective::kAllReduce, {16, 8}), 2 * 15.0 / 16 / 338e9);  // 8 cards are faster.
  EXPECT_DOUBLE_EQ(seconds_per_byte(Collective::kAllReduce, {2, 1}), 1 / (50e9 * 0.85));
}

// Rows travel in one piece, whether the schedule is named or not; two would be faster, but no framework has them.
TEST(ShippedNamesTest, ANamedScheduleBesideADispatcherHasOnePiece) {
  StepQuestion question;
  question.request.model = *NamedModel("qwen3-30b-a3b");
  question.request.gpus = 64;
  question.request.global_batch = 512;
  question.request.sequence_length = 4096;
  question.layout = {.tensor_parallel = 2, .expert_parallel = 16, .data_parallel = 0};
  const Profile profile = *HardwareProfile("h100-sxm", 64, question.request.model);
  for (const Dispatcher dispatcher : {Dispatcher::kAllGather, Dispatcher::kDeepEp}) {
    question.request.dispatcher = dispatcher;
    question.schedule.reset();
    const auto usual = PriceLayout(question, profile);
    question.schedule = Family::kParmS1;
    const auto named = PriceLayout(question, profile);
    ASSERT_TRUE(usual.ok() && named.ok());
    EXPECT_EQ(named->layout.moe.partition_degree, 1);
    EXPECT_EQ(named->layout.step_time_s, usual->layout.step_time_s);
  }
}

TEST(HardwareFileTest, WhatIsWrongIsNamed) {
  const std::string text(*ShippedText("hardware/b200.json"));
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return HardwareFromJson(changed, "x").status().message();
  };
  EXPECT_EQ(error("\"memoryBytes\"", "\"memoryByte\""), "x: figures.memoryBytes: expected a figure");
  EXPECT_EQ(error("\"gpusPerDomain\": 8", "\"gpusPerDomain\": 0"), "x: gpusPerDomain: expected a whole number above 0");
  EXPECT_EQ(error("\"figures\": {", "\"figures\": {\"other\": {},"), "x: figures.other: expected no such figure");
  EXPECT_THAT(HardwareFromJson("[", "x").status().message(), StartsWith("x: found no JSON object"));
}

}  // namespace
}  // namespace moeplan::planner
