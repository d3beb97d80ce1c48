#include "planner/targets/translate.h"

#include <random>
#include <set>
#include <string>

#include "models/text.h"
#include "moeplan/v1/step.pb.h"
#include "planner/messages/targets.h"
#include "planner/shipped/files.h"
#include "planner/shipped/names.h"
#include "planner/targets/facts.h"
#include "planner/targets/layout_fields.h"
#include "proto/json.h"
#include "tests/planner/targets/small_target.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

TEST(TranslateTest, ALayoutIsSaidAndWhatCannotBeIsListed) {
  const Json layout = {{"tensorParallel", 2},
                       {"expertParallel", 8},
                       {"dispatcher", "DEEPEP"},
                       {"recompute", "SELECTIVE"},
                       {"recomputeModules", {"MOE_ACT"}},
                       {"sequenceParallel", true},
                       {"expertShardingParallel", 2},
                       {"delayWeightGradients", true},
                       {"overlapExpertParallel", true},
                       {"stages", {4, 4}},
                       {"pipelineParallel", 2}};
  const ExportedLayout exported = ExportLayout(SmallTarget(), layout, {{"experts", 64}});
  EXPECT_EQ(exported.settings, (Settings{{"tp_size", 2},
                                         {"ep_size", 8},
                                         {"experts", 64},
                                         {"exchange", "fused"},
                                         {"fused_kind", "deep"},
                                         {"again", Json({"act"})},
                                         {"rows_cut", true},
                                         {"layers_of", "Et*4|t*4L"},
                                         {"grouped", true}}));
  EXPECT_EQ(exported.environment, (std::map<std::string, std::string>{{"QUEUES", "32"}}));
  std::map<std::string, std::string> reasons;
  for (const NotExpressible& one : exported.not_expressible) reasons[one.field] = one.reason;
  EXPECT_EQ(reasons.size(), 4u);
  EXPECT_EQ(reasons["expertShardingParallel"], "Experts are whole.");
  EXPECT_EQ(reasons["pipelineParallel"], "Small has no setting for this value");
  EXPECT_THAT(reasons["overlapExpertParallel"], HasSubstr("Small has no setting for exchanges of experts"));
  EXPECT_TRUE(reasons.contains("delayWeightGradients"));
}

// DeepSpeed computes layers again only in a pipeline: elsewhere its settings come back as a layout that does not.
TEST(TranslateTest, WhatWouldGetLostIsListed) {
  const auto target = TargetOf("deepspeed", "");
  ASSERT_TRUE(target.ok()) << target.status().message();
  const ExportedLayout exported = ExportLayout(*target, {{"recompute", "FULL"}, {"zeroStage", 2}}, {{"experts", 8}});
  ASSERT_EQ(exported.not_expressible.size(), 1u);
  EXPECT_EQ(exported.not_expressible[0].field, "recompute");
}

TEST(TranslateTest, AllLayersAreComputedAgainWhereNoneAreCounted) {
  const auto target = TargetOf("bridge", "");
  ASSERT_TRUE(target.ok()) << target.status().message();
  EXPECT_EQ(ExportLayout(*target, {{"recompute", "FULL"}}, {}).settings.at("model.recompute_method"), "uniform");
  const ExportedLayout two = ExportLayout(*target, {{"recompute", "FULL"}, {"recomputeLayers", 2}}, {});
  EXPECT_EQ(two.settings.at("model.recompute_method"), "block");
  EXPECT_EQ(two.settings.at("model.recompute_num_layers"), 2);
}

TEST(TranslateTest, LayersAreComputedAgainOneByOneOrInChunks) {
  for (const auto& [name, prefix] : {std::pair("bridge", "model."), {"megatron", ""}}) {
    SCOPED_TRACE(name);
    const auto target = TargetOf(name, "");
    ASSERT_TRUE(target.ok()) << target.status().message();
    const std::string method = StrCat(prefix, "recompute_method"), layers = StrCat(prefix, "recompute_num_layers");
    for (const int chunk : {1, 4}) {
      const ExportedLayout exported = ExportLayout(*target, {{"recompute", "FULL"}, {"recomputeChunk", chunk}}, {});
      EXPECT_TRUE(exported.not_expressible.empty());
      EXPECT_EQ(exported.settings.at(method), "uniform");
      EXPECT_EQ(exported.settings.at(layers), chunk);
      const Json back = CheckSettings(*target, exported.settings, {}).layout;
      EXPECT_EQ(back.value("recompute", ""), "FULL");
      EXPECT_EQ(back.value("recomputeChunk", 1), chunk);
      EXPECT_EQ(back.value("recomputeLayers", 0), 0);
    }
  }
}

// How contexts exchange says nothing where there is one, and so on.
TEST(TranslateTest, WhatSaysNothingIsNotMissed) {
  const Json layout = {{"expertParallel", 1},       {"contextExchange", "ALL_TO_ALL"},
                       {"sequenceParallel", false}, {"transport", "UCCL"},
                       {"virtualStages", 1},        {"recomputeLayers", 3}};
  EXPECT_TRUE(ExportLayout(SmallTarget(), layout, {}).not_expressible.empty());
}

TEST(TranslateTest, RulesAreCheckedWithDefaultsAndFacts) {
  const Target target = SmallTarget();
  const auto rules = [&](const Settings& settings, const Facts& facts) {
    std::vector<std::string> names;
    for (const Violation& violation : CheckSettings(target, settings, facts).violations)
      names.push_back(violation.rule);
    return names;
  };
  EXPECT_TRUE(rules({{"ep_size", 3}}, {}).empty());  // Nobody knows how many experts there are.
  EXPECT_EQ(rules({{"ep_size", 3}}, {{"experts", 8}}), std::vector<std::string>{"experts-divide"});
  EXPECT_EQ(rules({{"ep_size", 3}, {"experts", 8}}, {}), std::vector<std::string>{"experts-divide"});
  EXPECT_TRUE(rules({{"ep_size", 4}}, {{"experts", 8}}).empty());
  const CheckedSettings warned = CheckSettings(target, {{"rows_cut", true}}, {});
  ASSERT_EQ(warned.warnings.size(), 1u);
  EXPECT_EQ(warned.warnings[0].source, "other/lib@abcdef:d.py:9");
  EXPECT_EQ(warned.warnings[0].flags, (std::vector<std::string>{"--rows-cut", "--tp-size 1"}));
}

TEST(TranslateTest, WrongTablesAreRefusedByName) {
  const auto refusal = [](const std::string& from, const std::string& to) {
    std::string text(*ShippedText("targets/tutel.json"));
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return TargetFromJson(text, "table").status().message();
  };
  EXPECT_THAT(refusal("\"form\": \"CALL\"", "\"form\": \"SONG\""), HasSubstr("table: form"));
  EXPECT_THAT(refusal("\"field\": \"chunks\"", "\"field\": \"chunkz\""),
              HasSubstr("a field of a layout instead of chunkz"));
  EXPECT_THAT(refusal("\"setting\": \"a2a_ffn_overlap_degree\"", "\"setting\": \"a2a\""), HasSubstr("instead of a2a"));
  EXPECT_THAT(refusal("\"requires\": \"", "\"requires\": \"("), HasSubstr("an expression"));
  EXPECT_THAT(TargetFromJson("[]", "table").status().message(), HasSubstr("expected a JSON object"));
}

// Every field of the contract's layout has a row, so that a new one is said or listed.
TEST(TranslateTest, EveryFieldOfALayoutIsKnown) {
  const auto& type = *v1::StepLayout::descriptor();
  std::set<std::string> fields;
  for (int i = 0; i < type.field_count(); ++i) {
    fields.insert(type.field(i)->json_name());
    EXPECT_NE(DefaultOf(type.field(i)->json_name()), nullptr) << type.field(i)->json_name();
  }
  for (const LayoutField& field : LayoutFields()) {
    const bool of_plan = std::ranges::find(kPlanFields, field.name) != std::end(kPlanFields);
    EXPECT_TRUE(of_plan || fields.contains(std::string(field.name))) << field.name;
    if (field.matters.empty()) continue;
    EXPECT_TRUE(Expression::Parse(field.matters).ok()) << field.name;
  }
}

// No training system lays contexts across the experts' ranks; their settings are of contexts along them.
TEST(TranslateTest, HorizontalContextsAreNotExpressible) {
  const auto model = NamedModel("qwen3-30b-a3b");
  ASSERT_TRUE(model.ok());
  Facts facts = FactsOf(*model);
  facts["gpus"] = 32, facts["global_batch"] = 32, facts["sequence_length"] = 4096;
  for (const char* name : {"megatron", "bridge", "torchtitan", "deepspeed", "tutel"}) {
    const auto target = TargetOf(name, "");
    ASSERT_TRUE(target.ok()) << target.status().message();
    const auto lacks = [&](Json orientation, int contexts = 2) {
      Json layout = {{"contextParallel", contexts}, {"expertParallel", 4}};
      if (!orientation.is_null()) layout["horizontalContexts"] = orientation;
      const ExportedLayout exported = ExportLayout(*target, layout, facts);
      const Json back = exported.checked.layout.value("horizontalContexts", Json());
      const bool says_contexts = exported.checked.layout.value("contextParallel", 1) > 1;
      EXPECT_EQ(back, says_contexts ? Json(false) : Json()) << name;
      return std::ranges::any_of(exported.not_expressible,
                                 [](const auto& one) { return one.field == "horizontalContexts"; });
    };
    EXPECT_TRUE(lacks(true)) << name;
    EXPECT_FALSE(lacks(false)) << name;
    EXPECT_FALSE(lacks(nullptr)) << name;
    EXPECT_FALSE(lacks(false, /*contexts=*/1)) << name;
  }
}

// Whatever Megatron Core and Megatron-Bridge take comes back as it went, through arguments and through files.
TEST(TranslateTest, LayoutsSurviveTheWayThere) {
  const auto model = NamedModel("deepseek-v3");
  ASSERT_TRUE(model.ok());
  Facts facts = FactsOf(*model);
  facts["gpus"] = 256;
  facts["global_batch"] = 2048;
  facts["sequence_length"] = 4096;
  std::mt19937_64 random(TestSeed());
  const auto pick = [&](std::initializer_list<Json> values) { return values.begin()[random() % values.size()]; };
  for (const char* name : {"megatron", "bridge"}) {
    const auto target = TargetOf(name, "");
    ASSERT_TRUE(target.ok()) << target.status().message();
    int taken = 0;
    for (int i = 0; i < 1500; ++i) {
      Json layout = {{"tensorParallel", pick({1, 2, 4})},
                     {"expertParallel", pick({1, 8, 16, 32})},
                     {"contextParallel", pick({1, 2})},
                     {"pipelineParallel", pick({1, 2, 4})},
                     {"microBatch", pick({1, 2})},
                     {"dispatcher", pick({"ALL_TO_ALL", "DEEPEP", "HYBRID_EP"})},
                     {"overlapExpertParallel", pick({true, false})},
                     {"recompute", pick({"NONE", "SELECTIVE", "FULL"})},
                     {"precision", pick({"BF16", "FP8", "MXFP8"})},
                     {"capacityFactor", pick({0, 0, 1.25})},
                     {"zeroStage", 1}};
      if (layout["overlapExpertParallel"] == true) {
        layout["delayWeightGradients"] = pick({true, false});
        layout["overlapSharedExperts"] = false;
      }
      if (layout["recompute"] == "SELECTIVE")
        layout["recomputeModules"] = pick({{"MOE_ACT"}, {"MOE_ACT", "LAYERNORM"}});
      // 61 layers over more than one stage are never even.
      if (const int pipeline = layout["pipelineParallel"]; pipeline > 1) {
        Json stages = Json::array();
        for (int stage = 0; stage < pipeline; ++stage)
          stages.push_back(61 / pipeline + (stage < 61 % pipeline ? 1 : 0));
        layout["stages"] = stages;
      }
      const ExportedLayout exported = ExportLayout(*target, layout, facts);
      EXPECT_TRUE(exported.not_expressible.empty()) << layout << ": " << exported.not_expressible.front().field;
      if (!exported.checked.violations.empty()) continue;
      ++taken;
      std::string text;
      for (const std::string& token : WriteArguments(*target, exported.settings)) text += "'" + token + "' ";
      for (const auto& read :
           {ReadArguments(*target, text), ReadConfig(*target, WriteConfig(*target, exported.settings), "file")}) {
        ASSERT_TRUE(read.ok()) << read.status().message();
        EXPECT_TRUE(read->violations.empty()) << text << read->violations.front().reason;
        const Json back = CheckSettings(*target, read->settings, facts).layout;
        for (const auto& [field, value] : layout.items()) {
          if (value == *DefaultOf(field) && !back.contains(field)) continue;
          // With the overlap a step has none of it, said or not.
          if (field == "overlapSharedExperts" && layout["overlapExpertParallel"] == true) continue;
          ASSERT_TRUE(back.contains(field)) << field << " of " << layout << ": " << text;
          EXPECT_EQ(Json(back[field]).dump(), value.dump()) << field << " of " << layout << ": " << text;
        }
      }
    }
    EXPECT_GT(taken, 300) << name;
  }
}

}  // namespace
}  // namespace moeplan::planner
