#include "planner/targets/settings_text.h"

#include <string>

#include "models/text.h"
#include "tests/planner/targets/small_target.h"

namespace moeplan::planner {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SettingsRead Read(const std::string& text, const char* form = "FLAGS") {
  const auto read = ReadArguments(SmallTarget(form), text);
  EXPECT_TRUE(read.ok()) << read.status().message();
  return read.ok() ? *read : SettingsRead();
}

Settings SettingsOfFile(const std::string& text, const char* form = "FLAGS") {
  const auto read = ReadConfig(SmallTarget(form), text, "file");
  EXPECT_TRUE(read.ok()) << read.status().message();
  return read.ok() ? read->settings : Settings();
}

TEST(SettingsTextTest, LaunchScriptsAreRead) {
  const SettingsRead read = Read(R"(
    # a comment with --tp-size 9
    torchrun --nproc-per-node 8 pretrain.py \
      --tp-size 2 --exchange="fused" --data-path "a b/c" --again act norm \
      --capacity 1.25 --rows-cut --no-hide --tp-size 4)");
  EXPECT_EQ(read.settings, (Settings{{"tp_size", 4},
                                     {"exchange", "fused"},
                                     {"again", Json({"act", "norm"})},
                                     {"capacity", 1.25},
                                     {"rows_cut", true},
                                     {"hides", false}}));
  EXPECT_THAT(read.unknown, ElementsAre("--nproc-per-node", "--data-path"));
  EXPECT_TRUE(read.violations.empty());
}

// What the script itself sets is put in, as a shell would.
TEST(SettingsTextTest, VariablesOfAScriptAreExpanded) {
  const auto settings = [](const std::string& text) { return Read(text).settings; };
  const Settings wanted = {{"tp_size", 2}, {"ep_size", 8}, {"rows_cut", true}};
  EXPECT_EQ(settings("TP=2\nEP=${EP:-8}\nrun --tp-size $TP --ep-size ${EP} --rows-cut"), wanted);
  EXPECT_EQ(settings("TP=2; ARGS=\"--tp-size ${TP} --ep-size 8\"\nrun $ARGS --rows-cut"), wanted);
  EXPECT_EQ(settings("ARGS=(--tp-size 2 # two\n --ep-size 8 --rows-cut)\nrun \"${ARGS[@]}\""), wanted);
  // A part of a script that does not come to use them.
  EXPECT_EQ(settings("ARGS=(\n  --tp-size 2\n  --ep-size 8\n  --rows-cut\n)"), wanted);
  EXPECT_EQ(settings("A='--tp-size 2'\nA+=' --ep-size 8'\nrun $A --rows-cut"), wanted);
  EXPECT_EQ(Read("--tp-size $1").violations.size(), 1u);
  EXPECT_EQ(Read("--tp-size $(nproc)").violations.size(), 1u);
}

TEST(SettingsTextTest, ASlipOfASettingIsToldApartFromOthers) {
  const SettingsRead read = Read("--fused-knid deep --tp-size 2 --learning-rate 1");
  ASSERT_EQ(read.violations.size(), 1u);
  EXPECT_EQ(read.violations[0].rule, "unknown-setting");
  EXPECT_THAT(read.violations[0].reason, HasSubstr("did you mean --fused-kind?"));
  EXPECT_THAT(read.unknown, ElementsAre("--learning-rate"));
}

TEST(SettingsTextTest, ValuesThatASettingCannotHaveAreNamed) {
  const SettingsRead read = Read("--tp-size $TP --exchange magic --again act else --ep-size 1.5 --capacity");
  ASSERT_EQ(read.violations.size(), 5u);
  EXPECT_EQ(read.violations[0].rule, "value");
  EXPECT_THAT(read.violations[0].flags, ElementsAre("--tp-size $TP"));
  EXPECT_EQ(read.violations[0].reason, "found $TP, which a shell would fill in; expected a whole number");
  EXPECT_EQ(read.violations[0].source, "owner/small@0123456789:a.py:1");
  EXPECT_EQ(read.violations[1].reason, "found magic; expected nccl or fused");
  EXPECT_THAT(read.violations[2].reason, HasSubstr("expected act or norm"));
  EXPECT_EQ(read.violations[3].reason, "found 1.5; expected a whole number");
  EXPECT_EQ(read.violations[4].reason, "found nothing; expected a number");
  EXPECT_EQ(Read("--tp-size 0").violations[0].reason, "found 0; expected at least 1");
}

TEST(SettingsTextTest, OtherFormsSayTheSame) {
  const Settings wanted = {{"tp_size", 2}, {"again", Json({"act"})}, {"rows_cut", true}, {"hides", false}};
  EXPECT_EQ(Read("python run.py +tp_size=2 again=[act] rows_cut=true hides=False", "OVERRIDES").settings, wanted);
  EXPECT_EQ(Read("tp_size=2, again=['act'],rows_cut=True, hides=False", "CALL").settings, wanted);
  EXPECT_EQ(Read("--tp-size=2 --again act --rows_cut --no_hide x", "DOTTED_FLAGS").settings.size(), 3u);
  EXPECT_EQ(SettingsOfFile(R"({"tp_size": 2, "again": ["act"], "rows_cut": true, "hides": false})", "JSON"), wanted);
  EXPECT_EQ(SettingsOfFile("tp_size: 2\nagain: [act]\nrows_cut: true\nhides: false\nmore: {a: 1}\n", "OVERRIDES"),
            wanted);
  EXPECT_EQ(SettingsOfFile("ARGUMENTS:\n  --tp-size: 2\n  --again: [act]\n  --rows-cut: true\n  --no-hide: true\n"),
            wanted);
  EXPECT_EQ(SettingsOfFile("--tp-size: 2\n--again: [act]\nrows_cut: true\nno_hide: true\n"), wanted);
  EXPECT_EQ(SettingsOfFile("config.tp_size = 2  # two\nagain=['act'],\nrows_cut = True\nhides=False\n", "CALL"), wanted);
}

TEST(SettingsTextTest, WhatIsWrittenReadsBack) {
  const Settings settings = {
      {"tp_size", 8},     {"exchange", "fused"}, {"again", Json({"act", "norm"})}, {"capacity", 1.5},
      {"rows_cut", true}, {"hides", false},      {"layers_of", "Et*4|(t*4|)*2tL"}};
  for (const char* form : {"FLAGS", "OVERRIDES", "CALL", "JSON"}) {
    const Target target = SmallTarget(form);
    std::string text;
    for (const std::string& token : WriteArguments(target, settings)) {
      EXPECT_EQ(token.find(' ') == std::string::npos, true) << token;
      text += "'" + token + "' ";
    }
    if (target.form != SettingsForm::kJson) {
      // Quotes of Python stand within those of the shell.
      const auto read = ReadArguments(target, text);
      ASSERT_TRUE(read.ok()) << read.status().message();
      EXPECT_EQ(read->settings, settings) << form << ": " << text;
    }
    const std::string config = WriteConfig(target, settings);
    const auto read = ReadConfig(target, config, "file");
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->settings, settings) << form << ": " << config;
  }
}

TEST(SettingsTextTest, WhatNobodyCanReadIsRefused) {
  EXPECT_THAT(ReadArguments(SmallTarget(), "--exchange 'fused").status().message(),
              HasSubstr("a quote without its end"));
  EXPECT_THAT(ReadArguments(SmallTarget(), std::string(2 << 20, ' ')).status().message(), HasSubstr("at most 1048576"));
  EXPECT_THAT(ReadArguments(SmallTarget(), "--again \x8d\xff").status().message(), HasSubstr("no UTF-8"));
  EXPECT_THAT(ReadConfig(SmallTarget("OVERRIDES"), "again: [\"\xff\"]", "file").status().message(),
              HasSubstr("no UTF-8"));
  std::string many;
  for (int i = 0; i < 30000; ++i) many += "--x ";
  EXPECT_THAT(ReadArguments(SmallTarget(), many).status().message(), HasSubstr("more than 20000 arguments"));
  EXPECT_THAT(ReadArguments(SmallTarget("JSON"), "--a").status().message(), HasSubstr("takes no arguments"));
  EXPECT_THAT(ReadConfig(SmallTarget("JSON"), "[1]", "file").status().message(),
              HasSubstr("file: expected a JSON object"));
  EXPECT_THAT(ReadConfig(SmallTarget(), "a: [", "file").status().message(), HasSubstr("file: expected YAML"));
}

// A short text whose aliases name ever more values ("billion laughs").
TEST(SettingsTextTest, AliasesOfYamlDoNotMakeATextLong) {
  std::string text = "a0: &a0 {x: 1, y: 2}\n";
  for (int i = 1; i < 30; ++i) text += StrCat("a", i, ": &a", i, " {l: *a", i - 1, ", r: *a", i - 1, "}\n");
  EXPECT_THAT(ReadConfig(SmallTarget("OVERRIDES"), text, "file").status().message(),
              HasSubstr("more than 20000 values"));
  std::string list = "l: &l [";
  for (int i = 0; i < 1000; ++i) list += "1,";
  list += "1]\n";
  for (int i = 0; i < 1000; ++i) list += StrCat("k", i, ": *l\n");
  EXPECT_THAT(ReadConfig(SmallTarget(), list, "file").status().message(), HasSubstr("more than 20000 values"));
}

}  // namespace
}  // namespace moeplan::planner
