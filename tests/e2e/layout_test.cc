// `moeplan layout` as scripts use it, on the examples of deploy/.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Json = nlohmann::json;

const std::string kProfile = std::string(MOEPLAN_EXAMPLES) + "/profile-8x8.json";
const std::string kModel = std::string(MOEPLAN_EXAMPLES) + "/mixtral-8x7b.config.json";

std::vector<std::string> Command(const std::string& profile, const std::vector<std::string>& more = {}) {
  std::vector<std::string> command = {"layout", "--profile",      profile, "--model",           kModel, "--gpus",
                                      "1024",   "--global-batch", "2048",  "--sequence-length", "4096", "--json"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

TEST(LayoutCommandTest, AnswersForAThousandGpus) {
  const Outcome outcome = RunMoeplan(Command(kProfile, {"--zero", "1", "--top", "4"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json layouts = Json::parse(outcome.out).at("layouts");
  ASSERT_EQ(layouts.size(), 4u);
  double before_s = 0;
  for (const Json& one : layouts) {
    const Json& layout = one.at("layout");
    int ranks = 1;
    for (const char* degree : {"tensorParallel", "contextParallel", "dataParallel", "pipelineParallel"}) {
      ranks *= layout.at(degree).get<int>();
    }
    EXPECT_EQ(ranks, 1024);
    const double step_s = one.at("stepTimeS");
    EXPECT_GE(step_s, before_s);
    before_s = step_s;
    EXPECT_NEAR(one.at("tokensPerS").get<double>(), 2048 * 4096 / step_s, 1e-6 * 2048 * 4096 / step_s);
    EXPECT_GT(one.at("mfu"), 0);
    EXPECT_LT(one.at("mfu"), 1);
    EXPECT_LE(one.at("memoryBytes"), 8e10);
    EXPECT_GE(one.at("networkScale"), 1);
  }
  EXPECT_EQ(outcome.out, RunMoeplan(Command(kProfile, {"--zero", "1", "--top", "4"})).out);
}

TEST(LayoutCommandTest, RankingsFitIntoEightyColumns) {
  const std::vector<std::string> question = {
      "layout", "--hardware",        "h100-sxm:8x8", "--model", "qwen3-30b-a3b", "--global-batch",
      "512",    "--sequence-length", "4096",         "--top",   "40"};
  const Outcome outcome = RunMoeplan(question);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("TP  EP"));
  EXPECT_THAT(outcome.out, HasSubstr("MoE layer\n"));
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  std::vector<std::string> said = question;
  said.insert(said.end(), {"--gpus", "64"});
  EXPECT_EQ(RunMoeplan(said).out, outcome.out) << "The hardware has as many GPUs.";
}

// Sends and exchanges of experts that hide behind the same compute leave the search's bound a bound.
TEST(LayoutCommandTest, TheBestIsFoundHoweverFewAreAskedFor) {
  for (const char* const rate : {"1e9", "5e8"}) {
    const auto best_s = [&](const char* top) {
      const Outcome outcome = RunMoeplan(
          {"layout", "--hardware", "h100-sxm:8x8", "--model", "qwen3-30b-a3b", "--global-batch", "512",
           "--sequence-length", "4096", "--settings", R"({"overlapExpertParallel": true, "virtualStages": 2})",
           "--network", std::string(R"({"bytesPerS": )") + rate + "}", "--top", top, "--json"});
      EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
      return Json::parse(outcome.out).at("layouts").at(0).at("stepTimeS").get<double>();
    };
    EXPECT_EQ(best_s("1"), best_s("200")) << rate;
  }
}

// `moeplan step` of each row as it stands.
TEST(LayoutCommandTest, ARowIsALayoutThatTakesAsLongAlone) {
  const TemporaryFolder folder;
  const Outcome ranked = RunMoeplan(Command(kProfile, {"--zero", "1", "--top", "3"}));
  ASSERT_EQ(ranked.exit_code, 0) << ranked.err;
  const auto step = [&](const std::string& layout) {
    return RunMoeplan({"step", "--profile", kProfile, "--model", kModel, "--gpus", "1024", "--global-batch", "2048",
                       "--sequence-length", "4096", "--layout", layout, "--json"});
  };
  for (const Json& row : Json::parse(ranked.out).at("layouts")) {
    for (const std::string& layout : {row.dump(), folder.Write("row.json", row.dump())}) {
      const Outcome alone = step(layout);
      ASSERT_EQ(alone.exit_code, 0) << alone.err;
      const Json answer = Json::parse(alone.out);
      const double step_s = row.at("stepTimeS");
      EXPECT_NEAR(answer.at("stepTimeS").get<double>(), step_s, 1e-9 * step_s);
      EXPECT_EQ(answer.at("memoryBytes"), row.at("memoryBytes"));
      double exposed_s = 0, bytes = 0;
      for (const Json& part : answer.at("parts")) exposed_s += part.at("exposedS").get<double>();
      for (const auto& [kind, of_kind] : answer.at("memory").items()) bytes += of_kind.get<double>();
      EXPECT_NEAR(exposed_s, step_s, 1e-9 * step_s);
      EXPECT_NEAR(bytes, row.at("memoryBytes").get<double>(), 1);
      EXPECT_LT(answer.at("lowS"), step_s);
      EXPECT_GT(answer.at("highS"), step_s);
    }
  }
  // The same degrees with contexts across the experts' ranks and along them; nothing said is MoNTA's rule.
  const auto oriented_s = [&](const std::string& orientation) {
    const Outcome outcome =
        step(R"({"expertParallel": 8, "contextParallel": 4, "pipelineParallel": 8)" + orientation + "}");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.exit_code == 0 ? Json::parse(outcome.out).at("stepTimeS").get<double>() : 0;
  };
  EXPECT_NE(oriented_s(R"(, "horizontalContexts": true)"), oriented_s(R"(, "horizontalContexts": false)"));
  EXPECT_EQ(oriented_s(R"(, "horizontalContexts": true)"), oriented_s(""));
  const Outcome one_context = step(R"({"expertParallel": 8, "pipelineParallel": 8, "horizontalContexts": true})");
  EXPECT_EQ(one_context.exit_code, 2);
  EXPECT_THAT(one_context.err, HasSubstr("layout.horizontalContexts: found true, expected it where contextParallel 1"));
  const Outcome large = step(R"({"expertParallel": 8, "microBatch": 2})");
  EXPECT_EQ(large.exit_code, 1) << large.out;
  EXPECT_GT(Json::parse(large.out).at("missingBytes"), 0);
  const Outcome illegal = step(R"({"expertParallel": 3})");
  EXPECT_EQ(illegal.exit_code, 2);
  EXPECT_THAT(illegal.err, HasSubstr("layout.expertParallel: found 3, expected a divisor of 8 experts"));
}

// Layouts under Lancet's passes, each as long alone as in its row.
TEST(LayoutCommandTest, LancetsPassesAreARowAndAStep) {
  const std::vector<std::string> question = {"--model", "qwen3-30b-a3b",     "--gpus", "16",    "--global-batch",
                                             "64",      "--sequence-length", "4096",   "--json"};
  const auto run = [&](std::vector<std::string> command, const std::vector<std::string>& options) {
    command.insert(command.end(), {"--hardware", "h100-sxm"});
    command.insert(command.end(), question.begin(), question.end());
    command.insert(command.end(), options.begin(), options.end());
    return RunMoeplan(command);
  };
  const Outcome plain = run({"layout"}, {"--zero", "1", "--top", "3"});
  const Outcome ranked = run({"layout"}, {"--zero", "1", "--top", "3", "--lancet"});
  ASSERT_EQ(ranked.exit_code, 0) << ranked.err;
  const Json rows = Json::parse(ranked.out).at("layouts");
  EXPECT_LE(rows.at(0).at("stepTimeS"), Json::parse(plain.out).at("layouts").at(0).at("stepTimeS"));
  int lancet = 0;
  for (const Json& row : rows) {
    const Outcome alone = run({"step"}, {"--layout", row.dump()});
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
    const Json step = Json::parse(alone.out);
    EXPECT_NEAR(step.at("stepTimeS").get<double>() / row.at("stepTimeS").get<double>(), 1, 1e-9);
    EXPECT_EQ(step.at("moeSchedule"), row.at("schedule"));
    lancet += row.at("schedule") == "LANCET" ? 1 : 0;
  }
  EXPECT_GT(lancet, 0);
  const Outcome step = run({"step"}, {"--layout", R"({"expertParallel": 16, "schedule": "LANCET"})"});
  ASSERT_LE(step.exit_code, 1) << step.err;
  const Json answer = Json::parse(step.out);
  double exposed_s = 0;
  for (const Json& part : answer.at("parts")) exposed_s += part.at("exposedS").get<double>();
  EXPECT_NEAR(exposed_s / answer.at("stepTimeS").get<double>(), 1, 1e-9);
  EXPECT_EQ(answer.at("lancet").at("layerSchedule"), "BASELINE");
  EXPECT_GE(answer.at("lancet").at("withoutStepTimeS"), answer.at("stepTimeS"));
  const Outcome refused =
      run({"step"}, {"--layout", R"({"expertParallel": 16, "schedule": "LANCET", "overlapExpertParallel": true})"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("layout.overlapExpertParallel: found true, expected false"));
  const Outcome planned =
      run({"step"},
          {"--layout", R"({"expertParallel": 16, "schedule": "LANCET", "plan": {"schedule": "LANCET", "chunks": 2}})"});
  EXPECT_EQ(planned.exit_code, 2);
  EXPECT_THAT(planned.err, HasSubstr("layout.plan: found a plan of LANCET, expected none beside schedule LANCET"));
}

TEST(LayoutCommandTest, NamedHardwareAndModelsNeedNoMeasurement) {
  const std::vector<std::string> question = {"--model", "qwen3-30b-a3b",     "--gpus", "64", "--global-batch",
                                             "512",     "--sequence-length", "4096"};
  const auto run = [&](std::vector<std::string> command, const std::vector<std::string>& options) {
    command.insert(command.end(), question.begin(), question.end());
    command.insert(command.end(), options.begin(), options.end());
    return RunMoeplan(command);
  };
  const Outcome ranked = run({"layout", "--hardware", "h100-sxm"}, {"--zero", "1", "--json"});
  ASSERT_EQ(ranked.exit_code, 0) << ranked.err;
  const Json row = Json::parse(ranked.out).at("layouts").at(0);
  const Outcome alone = run({"step", "--hardware", "h100-sxm:8x8"}, {"--layout", row.dump(), "--json"});
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_NEAR(Json::parse(alone.out).at("stepTimeS").get<double>() / row.at("stepTimeS").get<double>(), 1, 1e-9);
  // A profile goes before it, cost by cost.
  const Outcome both =
      run({"step", "--profile", kProfile, "--hardware", "h100-sxm"}, {"--layout", row.dump(), "--json"});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_NE(Json::parse(both.out).at("stepTimeS"), Json::parse(alone.out).at("stepTimeS"));
  const Outcome unknown = run({"step", "--hardware", "h10"}, {"--layout", "{}"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--hardware: found 'h10', expected one of a100-pcie"));
}

// What overlap is worth, in one paragraph and one timeline.
TEST(LayoutCommandTest, OverlapIsExplained) {
  const TemporaryFolder folder;
  const std::string trace = folder / "step.json";
  const auto step = [&](const std::string& layout, const std::vector<std::string>& options) {
    std::vector<std::string> command = {"step",   "--hardware", "h100-sxm:8x8",   "--model",  "qwen3-30b-a3b",
                                        "--gpus", "64",         "--global-batch", "512",      "--sequence-length",
                                        "4096",   "--layout",   layout,           "--overlap"};
    command.insert(command.end(), options.begin(), options.end());
    return RunMoeplan(command);
  };
  const Outcome text = step(R"({"expertParallel": 64})", {"--trace", trace});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("Exchanges of experts beside another micro-batch make the step"),
                              HasSubstr("\ncompute    AA"), HasSubstr("\nexchanges  cc")));
  const size_t paragraph = text.out.find("Exchanges of experts");
  size_t longest = 0, start = paragraph;
  for (size_t end = text.out.find('\n', start); end != std::string::npos; end = text.out.find('\n', start)) {
    longest = std::max(longest, static_cast<size_t>(std::ranges::count_if(text.out.substr(start, end - start),
                                                                          [](char c) { return (c & 0xc0) != 0x80; })));
    start = end + 1;
  }
  EXPECT_LE(longest, 80u);
  int of_exchanges = 0;
  std::ifstream file(trace);
  const Json written = Json::parse(file);
  for (const Json& event : written.at("traceEvents")) {
    of_exchanges += event.at("pid") == 2 && event.at("ph") == "X" && event.at("tid") == 4;
  }
  EXPECT_EQ(of_exchanges, 8) << "two layers of both micro-batches";
  const Json json = Json::parse(step(R"({"expertParallel": 64})", {"--json"}).out);
  EXPECT_THAT(json.at("overlap"), HasSubstr("of exchanges and"));
  EXPECT_THAT(Json::parse(step(R"({"expertParallel": 64, "recompute": "FULL"})", {"--json"}).out).at("overlap"),
              HasSubstr("cannot run beside another micro-batch here"));
}

TEST(LayoutCommandTest, ALayoutIsComparedWithAnother) {
  const auto step = [](const std::string& layout, const std::vector<std::string>& options) {
    std::vector<std::string> command = {
        "step", "--hardware",        "b200", "--model",  "qwen3-30b-a3b", "--gpus", "16", "--global-batch",
        "256",  "--sequence-length", "4096", "--layout", layout};
    command.insert(command.end(), options.begin(), options.end());
    return RunMoeplan(command);
  };
  const std::string eight = R"({"expertParallel": 8})", four = R"({"expertParallel": 4, "recompute": "FULL"})";
  const Json one = Json::parse(step(eight, {"--json", "--against", four}).out);
  const Json other = Json::parse(step(four, {"--json"}).out);
  EXPECT_NEAR(one.at("gain").get<double>(), other.at("stepTimeS").get<double>() / one.at("stepTimeS").get<double>(),
              1e-9);
  EXPECT_LT(one.at("gainLow"), one.at("gain"));
  EXPECT_LT(one.at("gain"), one.at("gainHigh"));
  EXPECT_FALSE(other.contains("gain"));
  EXPECT_THAT(step(eight, {"--against", four}).out, HasSubstr("times as fast as --against (90 %: "));
  EXPECT_EQ(one.at("againstStepTimeS"), other.at("stepTimeS"));
  const Outcome unfit = step(eight, {"--json", "--against", R"({"microBatch": 16, "zeroStage": 0})"});
  EXPECT_THAT(unfit.out, HasSubstr("against: it does not fit: a GPU lacks "));
  EXPECT_EQ(step(eight, {"--against", ""}).exit_code, 2);
  const Outcome wrong = step(eight, {"--against", R"({"expertParallel": 3})"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("against"));
}

// What a row of a ranking says of these is what step reads.
TEST(LayoutCommandTest, StepsReadHowTheyRunFromARowAsFromALayout) {
  const auto step = [](const std::string& layout) {
    return RunMoeplan({"step", "--hardware", "h200-sxm", "--model", "deepseek-v3", "--gpus", "256", "--global-batch",
                       "2048", "--sequence-length", "4096", "--layout", layout, "--json"});
  };
  const Json plain =
      Json::parse(step(R"({"tensorParallel": 2, "expertParallel": 32, "pipelineParallel": 8})").out);
  for (const std::string changes : {R"("recomputeLayers": 2)", R"("recomputeChunk": 4)"}) {
    const std::string settings =
        R"("recompute": "FULL", "mtpLayers": 1, "overlapTensorParallel": true, "zeroStage": 1, )" + changes + "}";
    const Outcome row =
        step(R"({"layout": {"tensorParallel": 2, "expertParallel": 32, "pipelineParallel": 8}, )" + settings);
    const Outcome layout = step(R"({"tensorParallel": 2, "expertParallel": 32, "pipelineParallel": 8, )" + settings);
    const Json answer = Json::parse(layout.out);
    EXPECT_EQ(Json::parse(row.out).at("stepTimeS"), answer.at("stepTimeS")) << row.err << layout.err;
    EXPECT_EQ(Json::parse(row.out).at("memory"), answer.at("memory"));
    EXPECT_NE(plain.at("stepTimeS"), answer.at("stepTimeS"));
    EXPECT_NE(plain.at("memory"), answer.at("memory"));
  }
  // Dropless experts by the busiest rank.
  const std::string even = R"({"expertParallel": 64, "pipelineParallel": 4})";
  const Outcome busy = step(R"({"expertParallel": 64, "pipelineParallel": 4, "expertImbalance": 1.5})");
  EXPECT_GT(Json::parse(busy.out).at("stepTimeS"), Json::parse(step(even).out).at("stepTimeS"));
  const Outcome both = step(R"({"expertParallel": 64, "expertImbalance": 1.5, "capacityFactor": 1})");
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("layout.expertImbalance: found 1.5, expected 1 to expertParallel"));
  // One rank has all experts, however they are chosen.
  EXPECT_EQ(step(R"({"expertParallel": 1, "expertImbalance": 1.5})").exit_code, 2);
}

// The slices of the trace lie one after the other and add up to the step.
TEST(LayoutCommandTest, ATraceOfAStepAddsUpToIt) {
  const TemporaryFolder folder;
  const std::string path = folder / "step.trace.json";
  const Outcome step = RunMoeplan({"step", "--hardware", "h100-sxm", "--model", "mixtral-8x7b", "--gpus", "64",
                                   "--global-batch", "256", "--sequence-length", "4096", "--layout",
                                   R"({"expertParallel": 8, "pipelineParallel": 2})", "--trace", path, "--json"});
  ASSERT_EQ(step.exit_code, 0) << step.err;
  const double step_us = 1e6 * Json::parse(step.out).at("stepTimeS").get<double>();
  double now_us = 0;
  int passes = 0;
  const Json trace = Json::parse(ReadFile(path));
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("tid") != 1) continue;
    EXPECT_NEAR(event.at("ts").get<double>(), now_us, 1e-6 * step_us);
    now_us += event.at("dur").get<double>();
    passes += event.at("name") == "attention" ? 1 : 0;
  }
  EXPECT_NEAR(now_us, step_us, 1e-6 * step_us);
  EXPECT_EQ(passes, 2 * 256 / 32);  // Of each micro-batch, forward and backward.
}

TEST(LayoutCommandTest, WhatCannotFitIsANoWithTheMissingBytes) {
  const TemporaryFolder folder;
  Json profile = Json::parse(ReadFile(kProfile));
  profile["cluster"]["deviceMemoryBytes"] = 1e8;
  const Outcome outcome = RunMoeplan(Command(folder.Write("profile.json", profile.dump())));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("bytes more than cluster.deviceMemoryBytes"));
  const Json answer = Json::parse(outcome.out);
  EXPECT_TRUE(answer.at("layouts").empty());
  EXPECT_GT(answer.at("missingBytes"), 0);
}

TEST(LayoutCommandTest, WrongInputEndsWithTwo) {
  const auto expect_refused = [](const std::vector<std::string>& command, const std::string& what) {
    const Outcome outcome = RunMoeplan(command);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err, HasSubstr(what));
  };
  expect_refused(Command(kProfile, {"--recompute", "some"}),
                 "--recompute: found 'some', expected none, selective or full");
  expect_refused(Command(kProfile, {"--attention", "some"}), "--attention: found 'some', expected flash or stored");
  expect_refused(Command(kProfile, {"--zero", "4"}), "zeroStage: found 4");
  expect_refused(Command(kProfile, {"--top", "0"}), "--top: found 0");
  expect_refused(Command("absent.json"), "absent.json");
  expect_refused({"layout", "--profile", kProfile, "--model", kProfile, "--gpus", "8", "--global-batch", "8",
                  "--sequence-length", "64"},
                 "profile-8x8.json: hidden_size");
}

}  // namespace
}  // namespace moeplan::testing
