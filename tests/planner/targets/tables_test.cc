// The tables that ship: every rule can be broken alone and mended, and what the targets' own recipes and checks say
// holds.
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "models/text.h"
#include "planner/shipped/files.h"
#include "planner/shipped/names.h"
#include "planner/targets/settings_text.h"
#include "planner/targets/translate.h"

namespace moeplan::planner {
namespace {

using Json = nlohmann::json;

std::vector<Target> AllTargets() {
  std::vector<Target> targets;
  for (const std::string& name : ShippedNames("targets")) {
    const std::string path = StrCat("targets/", name, ".json");
    auto target = TargetFromJson(*ShippedText(path), path);
    EXPECT_TRUE(target.ok()) << target.status().message();
    if (target.ok()) targets.push_back(*std::move(target));
  }
  return targets;
}

Facts FactsFrom(const Json& json) {
  Facts facts;
  for (const auto& [name, value] : json.items()) facts.emplace(name, value);
  return facts;
}

struct Outcome {
  std::set<std::string> rules;  // Broken, or warned of.
  std::set<std::string> settings;
};

Outcome OutcomeOf(const Target& target, const std::string& text, const Facts& facts) {
  const auto read =
      target.form == SettingsForm::kJson ? ReadConfig(target, text, "example") : ReadArguments(target, text);
  Outcome outcome;
  if (text.empty()) return outcome;  // What mends a rule may be to say nothing.
  EXPECT_TRUE(read.ok()) << target.name << ": " << text << ": " << read.status().message();
  if (!read.ok()) return outcome;
  for (const Violation& violation : read->violations) outcome.rules.insert(violation.rule);
  EXPECT_TRUE(read->unknown.empty()) << target.name << ": " << text << ": unknown " << read->unknown.front();
  const CheckedSettings checked = CheckSettings(target, read->settings, facts);
  for (const auto* violations : {&checked.violations, &checked.warnings}) {
    for (const Violation& violation : *violations) {
      // Neither is a rule of the target.
      if (violation.rule == kOtherQuestion || violation.rule == kNotRead) continue;
      outcome.rules.insert(violation.rule);
      for (const TargetRule& rule : target.rules) {
        if (rule.rule == violation.rule) outcome.settings.insert(rule.settings.begin(), rule.settings.end());
      }
    }
  }
  return outcome;
}

TEST(TablesTest, EachRuleCanBeBrokenAloneAndMended) {
  const std::vector<Target> targets = AllTargets();
  ASSERT_EQ(targets.size(), 5u);
  size_t rules = 0;
  for (const Target& target : targets) {
    std::set<std::string> names;
    for (const TargetRule& rule : target.rules) {
      EXPECT_TRUE(names.insert(rule.rule).second) << target.name << ": two rules " << rule.rule;
      ASSERT_FALSE(rule.broken.empty()) << rule.rule;
      const Facts facts = FactsFrom(rule.facts);
      EXPECT_EQ(OutcomeOf(target, rule.broken, facts).rules, std::set<std::string>{rule.rule})
          << target.name << ": " << rule.broken;
      EXPECT_TRUE(OutcomeOf(target, rule.mended, facts).rules.empty())
          << target.name << ", mended " << rule.rule << ": " << rule.mended;
      ++rules;
    }
  }
  EXPECT_GE(rules, 240u);
}

// Nobody said how many GPUs or experts there are.
TEST(TablesTest, NothingSaidBreaksNothing) {
  for (const Target& target : AllTargets()) {
    for (const Facts& facts : {Facts(), Facts{{"gpus", 64}}, Facts{{"experts", 8}, {"layers", 32}, {"heads", 32}}}) {
      const CheckedSettings checked = CheckSettings(target, {}, facts);
      for (const Violation& violation : checked.violations) {
        // DeepSpeed takes no configuration without one.
        EXPECT_EQ(violation.rule, "batch-size-given") << target.name;
      }
    }
  }
}

TEST(TablesTest, SettingsAndRulesSayWhereTheyComeFrom) {
  for (const Target& target : AllTargets()) {
    EXPECT_EQ(target.commit.size(), 40u) << target.name;
    for (const LiveField& live : target.live) {
      EXPECT_THAT(live.source, ::testing::HasSubstr("/")) << target.name << " " << live.field;
      EXPECT_NE(live.reason, "") << target.name << " " << live.field;
    }
    for (const TargetRule& rule : target.rules) {
      // "path:line", in another repository or at another commit where it says so.
      EXPECT_THAT(rule.source, ::testing::MatchesRegex("([^:@]+/[^:@]+:)?[^:@]+:[0-9]+(@[0-9a-f]{10})?")) << rule.rule;
      EXPECT_THAT(target.Cite(rule.source), ::testing::MatchesRegex("[^:@]+/[^:@]+@[0-9a-f]{10}:[^:@]+:[0-9]+"));
    }
  }
}

// Transcribed from Megatron-LM's functional tests and assertions and from Megatron-Bridge's recipes, apart from the
// table.
// What recipes say of their pipelines is read, however they say it.
TEST(TablesTest, VirtualStagesOfRecipesAreRead) {
  const auto target = TargetOf("megatron", "");
  ASSERT_TRUE(target.ok());
  const auto layout = [&](const std::string& arguments) {
    const auto read = ReadArguments(*target, arguments);
    EXPECT_TRUE(read.ok());
    return CheckSettings(*target, read->settings, {{"layers", 32}, {"experts", 8}}).layout;
  };
  EXPECT_EQ(layout("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1").at("virtualStages"),
            8);
  EXPECT_EQ(layout("--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2").at("virtualStages"), 2);
  const Json by_stages =
      layout("--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*4|(t*4|)*6t*4L'");
  EXPECT_EQ(by_stages.at("virtualStages"), 2);
  EXPECT_EQ(by_stages.at("stages").size(), 8u);
  // Experts are cut over tensor-parallel ranks unless somebody says otherwise.
  EXPECT_EQ(layout("--tensor-model-parallel-size 2 --sequence-parallel --num-experts 8").at("expertShardingParallel"),
            2);
}

TEST(TablesTest, MegatronsOwnRecipesAreTakenAndBrokenOnesRefused) {
  const auto target = TargetOf("megatron", "");
  ASSERT_TRUE(target.ok()) << target.status().message();
  const Json cases = Json::parse(std::ifstream(std::string(MOEPLAN_CASES) + "/megatron_cases.json"));
  ASSERT_GE(cases.size(), 60u);
  int taken = 0, refused = 0;
  for (const Json& one : cases) {
    Facts facts = FactsFrom(one.at("facts"));
    facts["gpus"] = one.at("gpus");
    const std::string name = one.at("name"), arguments = one.at("arguments");
    const auto read = ReadArguments(*target, arguments);
    ASSERT_TRUE(read.ok()) << name;
    const CheckedSettings checked = CheckSettings(*target, read->settings, facts);
    std::string found;
    std::set<std::string> settings;
    for (const auto* violations : {&read->violations, &checked.violations}) {
      for (const Violation& violation : *violations) {
        found += StrCat(" ", violation.rule);
        // A value is of the flag that it stands beside.
        for (const Setting& setting : target->settings) {
          const std::string flag = Spelling(*target, setting.name, "x");
          const bool of_flag = violation.flags[0].starts_with(flag.substr(0, flag.find(' ')));
          if (violation.rule == "value" && of_flag) settings.insert(setting.name);
        }
        for (const TargetRule& rule : target->rules) {
          if (rule.rule == violation.rule) settings.insert(rule.settings.begin(), rule.settings.end());
        }
      }
    }
    if (one.at("valid").get<bool>()) {
      EXPECT_EQ(found, "") << name << ": " << arguments;
      ++taken;
      continue;
    }
    EXPECT_NE(found, "") << name << " (" << one.at("because") << "): " << arguments;
    const Json about = one.at("settings");
    EXPECT_TRUE(
        std::ranges::any_of(about, [&](const Json& setting) { return settings.contains(setting.get<std::string>()); }))
        << name << ": found" << found << " about other settings than " << about;
    ++refused;
  }
  EXPECT_GE(taken, 40);
  EXPECT_GE(refused, 40);
}

}  // namespace
}  // namespace moeplan::planner
