// `moeplan plan`, `fit` and `profile` as scripts use them: numbers, exit codes, messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>

#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::Not;
using Json = nlohmann::json;

const std::string kContract = std::string(MOEPLAN_TEST_DATA) + "/contract/";
const std::string kProfile = kContract + "profile.example.json";
const std::string kWorkload = kContract + "workload.example.json";

// The example workload with one value set, as a file.
std::string WorkloadWith(const TemporaryFolder& folder, const std::string& pointer, const Json& value) {
  Json workload = Json::parse(ReadFile(kWorkload));
  workload[Json::json_pointer(pointer)] = value;
  return folder.Write("workload.json", workload.dump());
}

size_t LongestLine(const std::string& text) {
  size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

void ExpectRefused(const Outcome& outcome, const std::string& what) {
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, HasSubstr(what));
}

TEST(PlanCommandTest, TheExampleGivesTheContractsNumbers) {
  const Outcome outcome = RunMoeplan({"plan", "--profile", kProfile, "--workload", kWorkload, "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json rules = Json::parse(outcome.out).at("rules");
  const Json expected = Json::parse(ReadFile(kContract + "expected.example.json")).at("rules");
  for (const char* path : {"/parm/tBaselineS", "/parm/tS1S", "/parm/tS2S", "/monta/tBaselineS", "/monta/o1/timeS",
                           "/monta/o2/timeS", "/monta/o2/chunks", "/monta/o3/timeS", "/monta/o3/chunks",
                           "/schemoe/partitionDegree", "/schemoe/optScheTimeS", "/schemoe/optimalTimeS"}) {
    const double want = expected.at(Json::json_pointer(path)).get<double>();
    EXPECT_NEAR(rules.at(Json::json_pointer(path)).get<double>(), want, 1e-6 * want) << path;
  }
  EXPECT_EQ(rules.at("parm").at("choice"), expected.at("parm").at("choice"));
  EXPECT_EQ(rules.at("monta").at("choice"), expected.at("monta").at("choice"));
}

TEST(PlanCommandTest, TheSameRequestGivesTheSameBytes) {
  const std::vector<std::string> command = {"plan", "--profile", kProfile, "--workload", kWorkload, "--json"};
  EXPECT_EQ(RunMoeplan(command).out, RunMoeplan(command).out);
}

TEST(PlanCommandTest, AnswersCarryWhatTheContractNames) {
  const Json answer = Json::parse(RunMoeplan({"plan", "--profile", kProfile, "--workload", kWorkload, "--json"}).out);
  EXPECT_EQ(answer.at("workload").at("maxChunks"), 64);
  EXPECT_EQ(answer.at("workload").at("layout").at("contextParallel"), 1);
  EXPECT_EQ(answer.at("profileName"), "two-nodes-of-eight");
  EXPECT_EQ(answer.at("profileVersion"), 0);
  EXPECT_EQ(answer.at("best"), answer.at("candidates").at(0));
  EXPECT_EQ(answer.at("search").at("stopReason"), "PROVED_BEST");
  EXPECT_FALSE(answer.at("explanation").get<std::string>().empty());
  EXPECT_FALSE(answer.at("rules").contains("lancet"));
  EXPECT_THAT(answer.at("skippedRules").dump(), HasSubstr("lancet"));
  EXPECT_EQ(answer.at("rules").at("schemoe").at("order").size(), 20U);  // C1 A1 D1 E A2 of four chunks.
  for (const char* field : {"schedule", "chunks", "partitionDegree", "allToAll", "dispatchCodec", "combineCodec",
                            "overlappedGather", "chunkShares", "order", "predictedTimeS", "lowS", "highS",
                            "communicationTimeS", "exposedCommunicationS", "computeTimeS", "memoryBytes", "timeline"}) {
    EXPECT_TRUE(answer.at("best").contains(field)) << field;
  }
}

TEST(PlanCommandTest, TopKeepsTheBest) {
  const Json all = Json::parse(RunMoeplan({"plan", "--profile", kProfile, "--workload", kWorkload, "--json"}).out);
  const Json two =
      Json::parse(RunMoeplan({"plan", "--profile", kProfile, "--workload", kWorkload, "--top", "2", "--json"}).out);
  ASSERT_EQ(two.at("candidates").size(), 2U);
  EXPECT_EQ(two.at("candidates").at(1), all.at("candidates").at(1));
}

TEST(PlanCommandTest, WrongInputNamesTheFieldAndPrintsNothing) {
  const TemporaryFolder folder;
  const auto plan = [](const std::string& workload) {
    return RunMoeplan({"plan", "--profile", kProfile, "--workload", workload, "--json"});
  };
  ExpectRefused(plan(folder / "absent.json"), "absent.json");
  ExpectRefused(plan(folder.Write("broken.json", "{\"layer\": ")), "broken.json");
  ExpectRefused(plan(folder.Write("nan.json", "{\"minChunkBytes\": NaN}")), "nan.json");
  ExpectRefused(plan(WorkloadWith(folder, "/layer/batch", -1)), "layer.batch");
  ExpectRefused(plan(WorkloadWith(folder, "/layer/batch", 1.5)), "layer.batch");
  ExpectRefused(plan(WorkloadWith(folder, "/layer/bacth", 1)), "layer.bacth");
  ExpectRefused(plan(WorkloadWith(folder, "/layer/capacityFactor", -1)), "layer.capacityFactor");
  ExpectRefused(plan(WorkloadWith(folder, "/layer/topK", 3)), "layer.topK");
  ExpectRefused(plan(WorkloadWith(folder, "/layer/gate", "TOP")), "layer.gate");
  ExpectRefused(plan(WorkloadWith(folder, "/layout/tensorParallel", 3)), "layout");
  ExpectRefused(plan(WorkloadWith(folder, "/layout/tensorParallel", 0)), "layout.tensorParallel");
  ExpectRefused(plan(WorkloadWith(folder, "/layout/dataParallel", 0)), "layout.dataParallel");
  ExpectRefused(plan(WorkloadWith(folder, "/layout/expertParallel", 4)), "expertParallel");
  ExpectRefused(plan(WorkloadWith(folder, "/maxChunks", 0)), "maxChunks");
  ExpectRefused(plan(WorkloadWith(folder, "/minChunkBytes", -5)), "minChunkBytes");
}

TEST(PlanCommandTest, AProfileThatIsWrongIsRefusedWithItsPath) {
  const TemporaryFolder folder;
  Json profile = Json::parse(ReadFile(kProfile));
  profile["collectives"][0]["efficiency"]["points"][1]["bytes"] = -3;
  const Outcome outcome = RunMoeplan(
      {"plan", "--profile", folder.Write("profile.json", profile.dump()), "--workload", kWorkload, "--json"});
  ExpectRefused(outcome, "collectives[0].efficiency.points[1]");
}

TEST(PlanCommandTest, AMissingEntrySkipsWhatNeedsItAndSaysHowToMeasure) {
  const TemporaryFolder folder;
  Json profile = Json::parse(ReadFile(kProfile));
  profile["collectives"].erase(3);  // ALL_REDUCE, which only the baselines need.
  const Outcome outcome = RunMoeplan(
      {"plan", "--profile", folder.Write("profile.json", profile.dump()), "--workload", kWorkload, "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json answer = Json::parse(outcome.out);
  EXPECT_FALSE(answer.at("rules").contains("parm"));
  EXPECT_TRUE(answer.at("rules").contains("monta"));
  EXPECT_THAT(answer.at("skippedRules").dump(), AllOf(HasSubstr("ALL_REDUCE"), HasSubstr("moeplan calibrate")));
  EXPECT_THAT(answer.at("skippedCandidates").dump(), AllOf(HasSubstr("BASELINE"), HasSubstr("ALL_REDUCE")));
}

TEST(PlanCommandTest, ExtrapolatePredictsAMissingEntryAndWarnsOfIt) {
  const TemporaryFolder folder;
  Json profile = Json::parse(ReadFile(kProfile));
  profile["collectives"].erase(3);  // ALL_REDUCE, which only the baselines need.
  const Outcome outcome = RunMoeplan({"plan", "--profile", folder.Write("profile.json", profile.dump()), "--workload",
                                      kWorkload, "--extrapolate", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json answer = Json::parse(outcome.out);
  EXPECT_TRUE(answer.at("rules").contains("parm"));
  EXPECT_THAT(
      answer.at("warnings").dump(),
      HasSubstr("ALL_REDUCE groupSize 8 ranksPerNode 8: not measured; extrapolated from links, 90 % interval "));
}

TEST(PlanCommandTest, NothingLeftToAnswerIsWrongInput) {
  const TemporaryFolder folder;
  const std::string empty =
      folder.Write("profile.json", R"({"name": "empty", "cluster": {"nodes": 2, "gpusPerNode": 8}})");
  ExpectRefused(RunMoeplan({"plan", "--profile", empty, "--workload", kWorkload, "--json"}), "ALL_TO_ALL");
}

TEST(PlanCommandTest, RulesWithoutACandidateAreAnAnswerAndTooLittleMemoryIsANo) {
  const TemporaryFolder folder;
  const auto plan_with = [&](const char* pointer, const Json& value) {
    Json profile = Json::parse(ReadFile(kProfile));
    profile[Json::json_pointer(pointer)] = value;
    return RunMoeplan(
        {"plan", "--profile", folder.Write("profile.json", profile.dump()), "--workload", kWorkload, "--json"});
  };
  const Outcome unmeasured = plan_with("/kernels", Json::array());
  EXPECT_EQ(unmeasured.exit_code, 0) << unmeasured.err;
  const Outcome tight = plan_with("/cluster/deviceMemoryBytes", 1e6);
  EXPECT_EQ(tight.exit_code, 1);
  EXPECT_THAT(
      tight.err,
      AllOf(HasSubstr("workload.example.json: No candidate that can be priced fits: the smallest needs at least "),
            HasSubstr("cluster.deviceMemoryBytes, which is 1000000"), HasSubstr("raise layout.expertParallel")));
  for (const Outcome& outcome : {unmeasured, tight}) {
    const Json answer = Json::parse(outcome.out);
    EXPECT_TRUE(answer.at("rules").contains("parm"));
    EXPECT_TRUE(answer.at("candidates").empty());
    EXPECT_FALSE(answer.contains("best"));
  }
}

TEST(CommandLineTest, EveryCommandExplainsItselfWithAnExample) {
  for (const char* command : {"calibrate", "fit", "plan", "run", "validate", "what-if", "serve", "layout"}) {
    const Outcome outcome = RunMoeplan({command, "--help"});
    EXPECT_EQ(outcome.exit_code, 0) << command;
    EXPECT_THAT(outcome.out, HasSubstr(std::string("moeplan ") + command)) << command;
  }
  EXPECT_EQ(RunMoeplan({"profile", "list", "--help"}).exit_code, 0);
  EXPECT_EQ(RunMoeplan({"import", "nccl-tests", "--help"}).exit_code, 0);
  EXPECT_THAT(RunMoeplan({"--version"}).out, HasSubstr("moeplan "));
}

TEST(CommandLineTest, WrongCommandLinesEndWithTwo) {
  EXPECT_EQ(RunMoeplan({}).exit_code, 2);
  EXPECT_EQ(RunMoeplan({"plann"}).exit_code, 2);
  EXPECT_EQ(RunMoeplan({"plan", "--no-such-option"}).exit_code, 2);
  ExpectRefused(RunMoeplan({"plan", "--workload", kWorkload}), "--profile, --db, --planner");
  ExpectRefused(RunMoeplan({"calibrate", "--db", "x.db"}), "--local");
  ExpectRefused(RunMoeplan({"what-if", "--sweep", "x=1"}), "expected --workload, or --layout");
  ExpectRefused(RunMoeplan({"layout", "--gpus", "1024"}), "is required; see moeplan layout --help");
}

TEST(CommandLineTest, AWordThatNoCommandTakesIsNamedEvenWhereMoreIsMissing) {
  ExpectRefused(
      RunMoeplan({"foo"}),
      "moeplan: found 'foo', expected one of the commands advise, calibrate, fit, import, profile, plan, graph, run, ");
  EXPECT_THAT(RunMoeplan({"foo"}).err, Not(HasSubstr("rank-worker")));
  ExpectRefused(RunMoeplan({"profile", "foo"}),
                "found 'foo', expected one of the commands list, show, rejected, prune, withdraw, backup; see moeplan "
                "profile --help");
  ExpectRefused(RunMoeplan({"--bogus", "plan"}), "found '--bogus', which moeplan does not take");
  ExpectRefused(RunMoeplan({"plan", "--bogus"}),
                "found '--bogus', which moeplan plan does not take; see moeplan plan --help");
  ExpectRefused(RunMoeplan({"calibrate", "--bogus"}),
                "found '--bogus', which moeplan calibrate does not take");  // And no --db.
  ExpectRefused(RunMoeplan({"plan", "workload.json"}), "found 'workload.json', which moeplan plan does not take");
  ExpectRefused(RunMoeplan({"calibrate"}), "--db is required; see moeplan calibrate --help");
  ExpectRefused(RunMoeplan({"profile"}), "subcommand is required; see moeplan profile --help");
}

TEST(ProfileCommandTest, AnAbsentDatabaseIsWrongInputAndStaysAbsent) {
  const TemporaryFolder folder;
  ExpectRefused(RunMoeplan({"profile", "list", "--db", folder / "absent.db", "--json"}), "absent.db");
  EXPECT_FALSE(std::filesystem::exists(folder / "absent.db"));
}

// Samples of alpha + beta·bytes at 1 KiB ... 256 MiB with 3 % noise and three in ten ten times too slow.
Json NoisySamples(double alpha_s, double beta_s_per_byte, std::mt19937_64& random) {
  std::normal_distribution<double> noise(1, 0.03);
  std::bernoulli_distribution slow(0.3);
  Json samples = Json::array();
  for (double bytes = 1024; bytes <= 268435456; bytes *= 2) {
    Json times = Json::array();
    for (int repeat = 0; repeat < 9; ++repeat) {
      times.push_back((alpha_s + beta_s_per_byte * bytes) * noise(random) * (slow(random) ? 10 : 1));
    }
    samples.push_back(
        {{"collective", "ALL_TO_ALL"}, {"groupSize", 8}, {"ranksPerNode", 8}, {"bytes", bytes}, {"timeS", times}});
  }
  return {{"name", "noisy"}, {"cluster", {{"nodes", 1}, {"gpusPerNode", 8}}}, {"samples", samples}};
}

TEST(FitCommandTest, RecoversTheLineAmongSlowSamples) {
  const TemporaryFolder folder;
  std::mt19937_64 random(20240517);
  const double alpha_s = 3e-5, beta_s_per_byte = 2e-11;
  const Outcome outcome =
      RunMoeplan({"fit", "--samples",
                  folder.Write("samples.json", NoisySamples(alpha_s, beta_s_per_byte, random).dump()), "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json profile = Json::parse(outcome.out);
  EXPECT_EQ(profile.at("name"), "noisy");
  const Json model = profile.at("collectives").at(0);
  EXPECT_NEAR(model.at("alphaBeta").at("alphaS").get<double>(), alpha_s, 0.05 * alpha_s);
  EXPECT_NEAR(model.at("alphaBeta").at("betaSPerByte").get<double>(), beta_s_per_byte, 0.05 * beta_s_per_byte);
  EXPECT_TRUE(model.contains(model.at("fit").at("chosen").get<std::string>()));
  EXPECT_EQ(model.at("fit").at("points"), 19);
}

TEST(FitCommandTest, RepeatedSamplesAreMergedAndBadOnesRefused) {
  const TemporaryFolder folder;
  std::mt19937_64 random(7);
  Json first = NoisySamples(1e-5, 1e-11, random), second = first;
  second["samples"][0]["groupSize"] = 4;
  second["samples"][0]["ranksPerNode"] = 4;
  first["cluster"]["deviceMemoryBytes"] = 0;
  second["cluster"]["deviceMemoryBytes"] = 8e10;
  second["cluster"]["networkBytesPerS"] = 5e10;
  const std::string a = folder.Write("a.json", first.dump()), b = folder.Write("b.json", second.dump());
  const Outcome merged = RunMoeplan({"fit", "--samples", a, "--samples", b, "--json"});
  ASSERT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_EQ(Json::parse(merged.out).at("collectives").size(), 2U);
  EXPECT_EQ(Json::parse(merged.out).at("cluster").at("deviceMemoryBytes"), 8e10) << "what one file does not know";
  EXPECT_EQ(Json::parse(merged.out).at("cluster").at("networkBytesPerS"), 5e10);
  second["samples"][2]["timeS"][1] = -1;
  ExpectRefused(RunMoeplan({"fit", "--samples", folder.Write("c.json", second.dump()), "--json"}),
                "samples[2].timeS[1]");
}

// ---- Training graphs.

const Json kGraph = Json::parse(R"({"instructions": [
    {"id": "a", "op": "ALL_TO_ALL", "phase": "BACKWARD", "timeS": 6, "outputs": ["x"]},
    {"id": "y", "op": "MATMUL", "phase": "BACKWARD", "timeS": 2, "inputs": ["x"]},
    {"id": "dw", "op": "MATMUL", "phase": "BACKWARD", "timeS": 5, "weightGradient": true}]})");

TEST(PlanGraphCommandTest, AGraphWithEveryTimeIsAnsweredWithoutASource) {
  const TemporaryFolder folder;
  const Outcome outcome = RunMoeplan({"plan", "--graph", folder.Write("graph.json", kGraph.dump()), "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json answer = Json::parse(outcome.out);
  EXPECT_FALSE(answer.contains("workload"));
  EXPECT_FALSE(answer.contains("best"));
  EXPECT_EQ(answer.at("candidates"), Json::array());
  EXPECT_EQ(answer.at("profileVersion"), 0);
  EXPECT_EQ(answer.at("rules").size(), 1U);
  const Json& lancet = answer.at("rules").at("lancet");
  const Json expected = Json::parse(R"({
      "weightGradients": [{"instruction": "dw", "allToAll": "a"}], "partitions": [],
      "unscheduledTimeS": 13, "timeS": 8, "order": ["a", "dw", "y"],
      "communicationTimeS": 6, "exposedCommunicationS": 1, "unscheduledExposedS": 6})");
  for (const auto& [field, value] : expected.items()) EXPECT_EQ(lancet.at(field), value) << field;
  EXPECT_EQ(lancet.at("timeline").size(), 3u);
  EXPECT_EQ(answer.at("graph").at("instructions").size(), 3u);
  const Outcome text = RunMoeplan({"plan", "--graph", folder.Write("graph.json", kGraph.dump())});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("38.5 % earlier"), HasSubstr("dw")));
  EXPECT_THAT(LongestLine(text.out), AllOf(Gt(60), Le(80)));
}

TEST(PlanGraphCommandTest, PassesCanBeLeftOut) {
  const TemporaryFolder folder;
  const std::string graph = folder.Write("graph.json", kGraph.dump());
  const auto time_s = [&](const std::vector<std::string>& passes) {
    std::vector<std::string> command = {"plan", "--graph", graph, "--json"};
    for (const std::string& pass : passes) command.insert(command.end(), {"--without", pass});
    const Outcome outcome = RunMoeplan(command);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return Json::parse(outcome.out).at("rules").at("lancet").at("timeS").get<double>();
  };
  EXPECT_EQ(time_s({}), 8);
  EXPECT_EQ(time_s({"partition"}), 8);
  EXPECT_EQ(time_s({"weight-gradients"}), 13);
  EXPECT_EQ(time_s({"weight-gradients", "partition"}), 13);
  ExpectRefused(RunMoeplan({"plan", "--graph", graph, "--without", "all"}),
                "--without: found all, expected weight-gradients or partition");
  ExpectRefused(RunMoeplan({"plan", "--profile", kProfile, "--workload", kWorkload, "--without", "partition"}),
                "--without: found a value, expected none beside workload");
}

TEST(PlanGraphCommandTest, WrongGraphsAndCommandLinesAreRefused) {
  const TemporaryFolder folder;
  const auto plan = [&](const std::string& pointer, const Json& value) {
    Json graph = kGraph;
    graph[Json::json_pointer(pointer)] = value;
    return RunMoeplan({"plan", "--graph", folder.Write("graph.json", graph.dump()), "--json"});
  };
  ExpectRefused(plan("/instructions/1/id", "a"), "graph.json: instructions[1] (a).id");
  ExpectRefused(plan("/instructions/1/timeS", -1), "graph.json: instructions[1] (y).timeS");
  ExpectRefused(plan("/instructions/1/tmeS", 1), "instructions[1].tmeS");
  ExpectRefused(plan("/instructions/0/inputs", {"x"}), "no cycle");
  ExpectRefused(RunMoeplan({"plan", "--graph", folder / "absent.json"}), "absent.json");
  const std::string graph = folder.Write("graph.json", kGraph.dump());
  ExpectRefused(RunMoeplan({"plan", "--profile", kProfile}), "found neither of --workload and --graph");
  ExpectRefused(RunMoeplan({"plan", "--graph", graph, "--workload", kWorkload}),
                "found both of --workload and --graph");
  ExpectRefused(RunMoeplan({"plan", "--graph", graph, "--profile-name", "x"}), "--profile");
  ExpectRefused(RunMoeplan({"plan", "--graph", graph, "--top", "2"}), "--top");
  ExpectRefused(RunMoeplan({"plan", "--graph", graph, "--extrapolate"}), "--extrapolate");
  Json unpriced = kGraph;
  unpriced["instructions"][0].erase("timeS");
  const std::string asked = folder.Write("unpriced.json", unpriced.dump());
  ExpectRefused(RunMoeplan({"plan", "--graph", asked}), "instructions[0] (a): found neither its timeS nor a profile");
  unpriced["instructions"][0].update({{"bytes", 1024}, {"groupSize", 4}, {"ranksPerNode", 1}});
  ExpectRefused(RunMoeplan({"plan", "--profile", kProfile, "--graph", folder.Write("unpriced.json", unpriced.dump())}),
                "ALL_TO_ALL groupSize 4 ranksPerNode 1");
}

TEST(GraphCommandTest, ThePapersModelsArePlannedFromTheirConfigs) {
  const TemporaryFolder folder;
  const std::string examples = std::string(MOEPLAN_EXAMPLES) + "/";
  for (const auto& [model, layers] : {std::pair("gpt2-s-moe.json", 6U), std::pair("gpt2-l-moe.json", 12U)}) {
    const Outcome graph =
        RunMoeplan({"graph", "--profile", examples + "profile-2x8.json", "--model", examples + model, "--batch", "24",
                    "--sequence-length", "512", "--expert-parallel", "16", "--gate", "SWITCH", "--paper-limits"});
    ASSERT_EQ(graph.exit_code, 0) << graph.err;
    const Outcome plan = RunMoeplan({"plan", "--graph", folder.Write("graph.json", graph.out), "--json"});
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    const Json lancet = Json::parse(plan.out).at("rules").at("lancet");
    EXPECT_LT(lancet.at("timeS"), lancet.at("unscheduledTimeS"));
    EXPECT_EQ(lancet.at("partitions").size(), layers);
  }
}

TEST(GraphCommandTest, LimitsAreThoseAskedFor) {
  const std::string examples = std::string(MOEPLAN_EXAMPLES) + "/";
  const auto run = [&](const std::vector<std::string>& limits) {
    std::vector<std::string> command = {
        "graph",   "--profile", examples + "profile-2x8.json", "--model", examples + "gpt2-s-moe.json",
        "--batch", "24",        "--sequence-length",           "512",     "--expert-parallel",
        "16"};
    command.insert(command.end(), limits.begin(), limits.end());
    return RunMoeplan(command);
  };
  const auto limits = [&](const std::vector<std::string>& asked) {
    const Outcome outcome = run(asked);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const Json graph = Json::parse(outcome.out);
    return std::pair<double, double>(graph.at("groupS"), graph.at("maxRangeS"));
  };
  EXPECT_EQ(limits({}), std::pair(0.0, 0.0));
  EXPECT_EQ(limits({"--group", "0.002", "--max-range", "0.01"}), std::pair(0.002, 0.01));
  const auto [group_s, max_range_s] = limits({"--paper-limits"});
  EXPECT_GT(group_s, 0);
  EXPECT_NEAR(max_range_s, 5 * group_s, 1e-12);
  ExpectRefused(run({"--group", "-1"}), "group: found -1, expected a finite number of seconds");
  ExpectRefused(run({"--paper-limits", "--max-range", "1"}), "moeplan: --paper-limits: found others beside them");
}

// Runs `graph` on a model that fits anywhere, on 16 GPUs.
Outcome RunTinyGraph(const std::vector<std::string>& options) {
  const std::string examples = std::string(MOEPLAN_EXAMPLES) + "/";
  std::vector<std::string> command = {"graph",
                                      "--profile",
                                      examples + "profile-8x8.json",
                                      "--model",
                                      examples + "tiny-mixtral.config.json",
                                      "--sequence-length",
                                      "512",
                                      "--gpus",
                                      "16"};
  command.insert(command.end(), options.begin(), options.end());
  return RunMoeplan(command);
}

TEST(GraphCommandTest, ALayoutIsWhatItsOptionsSay) {
  const Outcome options =
      RunTinyGraph({"--batch", "2", "--expert-parallel", "4", "--expert-sharding-parallel", "2", "--tensor-parallel",
                    "2", "--context-parallel", "2", "--no-sequence-parallel", "--zero", "3", "--capacity-factor", "0"});
  ASSERT_EQ(options.exit_code, 0) << options.err;
  const Outcome layout = RunTinyGraph(
      {"--layout",
       R"({"microBatch": 2, "expertParallel": 4, "expertShardingParallel": 2, "tensorParallel": 2, "contextParallel": 2,
           "sequenceParallel": false, "zeroStage": 3})"});
  ASSERT_EQ(layout.exit_code, 0) << layout.err;
  EXPECT_EQ(layout.out, options.out);
  // Contexts lie where the layout has them, and gradients are as large.
  const Outcome along = RunTinyGraph({"--layout",
                                      R"({"microBatch": 2, "expertParallel": 4, "tensorParallel": 2,
                                          "contextParallel": 4, "horizontalContexts": false})"});
  const Outcome across = RunTinyGraph({"--layout",
                                       R"({"microBatch": 2, "expertParallel": 4, "tensorParallel": 2,
                                           "contextParallel": 4, "horizontalContexts": true,
                                           "gradientPrecision": "BF16"})"});
  ASSERT_EQ(across.exit_code, 0) << across.err;
  const auto find = [](const Outcome& outcome, const std::string& id) {
    const Json graph = Json::parse(outcome.out);
    for (const Json& one : graph.at("instructions")) {
      if (one.at("id") == id) return one;
    }
    return Json();
  };
  EXPECT_EQ(find(along, "layer0.contexts").at("ranksPerNode"), 4);
  EXPECT_EQ(find(across, "layer0.contexts").at("ranksPerNode"), 2);
  EXPECT_EQ(2.0 * find(across, "gradients.1").at("bytes").get<double>(),
            find(along, "gradients.1").at("bytes").get<double>());
}

TEST(GraphCommandTest, AStageIsWhatItsOptionsSay) {
  const Outcome options = RunTinyGraph(
      {"--batch", "2", "--expert-parallel", "4", "--pipeline-parallel", "2", "--stage", "0", "--capacity-factor", "0"});
  ASSERT_EQ(options.exit_code, 0) << options.err;
  const std::string layout = R"({"microBatch": 2, "expertParallel": 4, "pipelineParallel": 2})";
  EXPECT_EQ(RunTinyGraph({"--layout", layout, "--stage", "0"}).out, options.out);
  const Outcome last = RunTinyGraph({"--layout", layout, "--stage", "1"});
  ASSERT_EQ(last.exit_code, 0) << last.err;
  EXPECT_NE(last.out, options.out);
  // The one that has more to do: the last, which has the head.
  EXPECT_EQ(RunTinyGraph({"--layout", layout}).out, last.out);
  const Json graph = Json::parse(last.out);
  int received = 0;
  for (const Json& one : graph.at("instructions")) {
    if (one.at("id") != "received") continue;
    EXPECT_EQ(one.at("op"), "SEND");
    EXPECT_EQ(one.at("groupSize"), 2);
    ++received;
  }
  EXPECT_EQ(received, 1);
}

TEST(GraphCommandTest, RowsOfARankingAreGraphsToPlan) {
  const TemporaryFolder folder;
  const std::string examples = std::string(MOEPLAN_EXAMPLES) + "/";
  const Outcome ranking = RunMoeplan({"layout", "--profile", examples + "profile-8x8.json", "--model",
                                      examples + "tiny-mixtral.config.json", "--sequence-length", "512", "--gpus", "16",
                                      "--global-batch", "16", "--zero", "1", "--top", "1000", "--json"});
  ASSERT_EQ(ranking.exit_code, 0) << ranking.err;
  int planned = 0, in_stages = 0;
  const Json rows = Json::parse(ranking.out).at("layouts");
  for (size_t i = 0; i < rows.size(); i += 7) {
    const Json& degrees = rows[i].at("layout");
    in_stages += degrees.at("pipelineParallel") != 1 ? 1 : 0;
    const std::string row = folder.Write("row.json", rows[i].dump());
    const Outcome graph = RunTinyGraph({"--layout", row});
    ASSERT_EQ(graph.exit_code, 0) << rows[i].dump() << graph.err;
    const Outcome plan = RunMoeplan({"plan", "--graph", folder.Write("graph.json", graph.out), "--json"});
    EXPECT_EQ(plan.exit_code, 0) << plan.err;
    ++planned;
  }
  EXPECT_GT(planned, 10);
  EXPECT_GT(in_stages, 10);
}

// Virtual stages, what is computed again, stored scores and further tokens, planned as they are.
TEST(GraphCommandTest, ALayoutSaysWhatIsKeptAndPredicted) {
  const TemporaryFolder folder;
  const auto ids_of = [&](const std::string& layout, const std::vector<std::string>& options = {}) {
    std::vector<std::string> command = {"--layout", layout};
    command.insert(command.end(), options.begin(), options.end());
    const Outcome graph = RunTinyGraph(command);
    EXPECT_EQ(graph.exit_code, 0) << graph.err;
    const Outcome plan = RunMoeplan({"plan", "--graph", folder.Write("graph.json", graph.out), "--json"});
    EXPECT_EQ(plan.exit_code, 0) << plan.err;
    std::vector<std::string> ids;
    const Json parsed = Json::parse(graph.out);
    for (const Json& one : parsed.at("instructions")) ids.push_back(one.at("id"));
    return ids;
  };
  const std::string stages = R"({"pipelineParallel": 2, "virtualStages": 2, "expertParallel": 4})";
  EXPECT_THAT(ids_of(stages, {"--stage", "2"}), AllOf(Contains("layer2.attention"), Not(Contains("layer1.attention")),
                                                      Not(Contains("layer3.attention"))));
  EXPECT_THAT(ids_of(R"({"expertParallel": 4, "recompute": "FULL", "recomputeLayers": 1})"),
              AllOf(Contains("layer0.all_to_all1.recomputed"), Not(Contains("layer1.all_to_all1.recomputed"))));
  EXPECT_THAT(ids_of(R"({"expertParallel": 4, "recompute": "SELECTIVE", "recomputeModules": ["LAYERNORM"]})"),
              AllOf(Contains("layer3.norm2.recomputed"), Not(Contains("layer3.attention.recomputed"))));
  EXPECT_THAT(ids_of(R"({"expertParallel": 4, "attention": "STORED", "mtpLayers": 1})"),
              AllOf(Contains("next1.all_to_all1"), Contains("next1.loss"), Contains("loss")));
  EXPECT_THAT(ids_of(R"({"expertParallel": 4, "dispatcher": "ALL_GATHER"})"),
              AllOf(Contains("layer2.gather"), Contains("layer2.scatter"), Not(Contains("layer2.all_to_all1"))));
  EXPECT_THAT(ids_of(R"({"expertParallel": 4, "dispatcher": "DEEPEP"})"), Contains("layer2.all_to_all1"));
  EXPECT_THAT(
      ids_of(R"({"contextParallel": 2, "contextExchange": "ALL_TO_ALL"})"),
      AllOf(Contains("layer0.contexts_keys"), Contains("layer0.contexts_out"), Not(Contains("layer0.contexts"))));
  EXPECT_THAT(ids_of(R"({"tensorParallel": 2, "overlapTensorParallel": true, "precision": "FP8"})"),
              AllOf(Contains("layer0.qkv_in.piece2"), Contains("layer0.qkv.piece2"), Contains("head_in")));
}

TEST(GraphCommandTest, LayoutsThatNoGraphHasAreRefused) {
  const auto of_layout = [](const std::string& layout) { return RunTinyGraph({"--layout", layout}); };
  ExpectRefused(of_layout(R"({"tensorParallel": 3})"), "layout.tensorParallel: found 3, expected a divisor of the 8");
  ExpectRefused(of_layout(R"({"pipelineParallel": 3})"), "gpus: found 16, expected a multiple of the 3");
  ExpectRefused(of_layout(R"({"pipelineParallel": 8})"), "layout.pipelineParallel: found 8, expected");
  ExpectRefused(of_layout(R"({"pipelineParallel": 2, "virtualStages": 3})"),
                "layout.virtualStages: found 3, expected at most 2");
  ExpectRefused(RunTinyGraph({"--layout", R"({"pipelineParallel": 2})", "--stage", "2"}),
                "stage: found 2, expected 0 to 1");
  ExpectRefused(RunTinyGraph({"--layout", "{}", "--pipeline-parallel", "2"}), "--pipeline-parallel");
  ExpectRefused(of_layout(R"({"dataParallel": 3})"), "layout.dataParallel: found 3, expected 16");
  ExpectRefused(of_layout(R"({"transport": "NVSHMEM"})"), "layout.transport: found NVSHMEM with dispatcher ALL_TO_ALL");
  ExpectRefused(of_layout(R"({"overlapExpertParallel": true})"), "layout.overlapExpertParallel: found true");
  ExpectRefused(of_layout(R"({"tensorParalel": 2})"), "tensorParalel");
  ExpectRefused(RunTinyGraph({"--layout", "{}", "--zero", "3"}), "--zero");
  ExpectRefused(RunTinyGraph({"--expert-parallel", "4"}), "--batch: found nothing");
  ExpectRefused(RunTinyGraph({"--batch", "4"}), "--expert-parallel: found nothing");
  ExpectRefused(RunTinyGraph({"--batch", "4", "--expert-parallel", "4", "--zero", "4"}), "--zero");
  ExpectRefused(RunTinyGraph({"--batch", "4", "--expert-parallel", "4", "--context-parallel", "3"}),
                "layout.contextParallel: found 3");
}

TEST(GraphCommandTest, WrongModelsAndOptionsAreRefused) {
  const TemporaryFolder folder;
  const std::string examples = std::string(MOEPLAN_EXAMPLES) + "/";
  const auto graph = [&](const std::string& model, const std::string& ranks, const std::string& gate = "TOP_K") {
    return RunMoeplan({"graph", "--profile", examples + "profile-2x8.json", "--model", model, "--batch", "1",
                       "--sequence-length", "8", "--expert-parallel", ranks, "--gate", gate});
  };
  const std::string gpt2 = examples + "gpt2-s-moe.json";
  ExpectRefused(graph(gpt2, "3"), "moeplan: --expert-parallel: found 3, expected a divisor of the 32 experts");
  ExpectRefused(graph(gpt2, "8"), "the profile lacks ALL_TO_ALL groupSize 8 ranksPerNode 8");
  ExpectRefused(graph(gpt2, "16", "TOP"), "--gate: found TOP");
  ExpectRefused(graph(folder.Write("config.json", "{}"), "16"), "config.json: hidden_size");
  ExpectRefused(graph(folder / "absent.json", "16"), "absent.json");
  ExpectRefused(graph("mixtral-8x9b", "16"), "--model: found 'mixtral-8x9b', which is no file, expected");
  const Outcome named = graph("mixtral-8x7b", "8");
  ExpectRefused(named, "mixtral-8x7b: the profile lacks ALL_TO_ALL groupSize 8 ranksPerNode 8");
}

// ---- Gradients.

// The example's profile with the all-reduce over the replicas of its dense layers, one on each node.
std::string ProfileWithAllReduce(const TemporaryFolder& folder) {
  Json profile = Json::parse(ReadFile(kProfile));
  profile["collectives"].push_back({{"collective", "ALL_REDUCE"},
                                    {"groupSize", 2},
                                    {"ranksPerNode", 1},
                                    {"alphaBeta", {{"alphaS", 2e-5}, {"betaSPerByte", 4e-11}}}});
  return folder.Write("profile.json", profile.dump());
}

TEST(PlanCommandTest, WithoutGradientsTheAnswerIsTheSameToTheByte) {
  const TemporaryFolder folder;
  const auto plan = [](const std::string& workload) {
    return RunMoeplan({"plan", "--profile", kProfile, "--workload", workload, "--json"}).out;
  };
  const std::string without = plan(kWorkload);
  EXPECT_EQ(plan(WorkloadWith(folder, "/gradientBytes", 0)), without);
  EXPECT_THAT(without, Not(HasSubstr("radient")));
}

TEST(PlanCommandTest, GradientsAreSlicedIntoTheGapsOfEveryCandidate) {
  const TemporaryFolder folder;
  Json workload = Json::parse(ReadFile(kWorkload));
  workload["phase"] = "BACKWARD";
  const std::string profile = ProfileWithAllReduce(folder);
  const auto plan = [&](double bytes) {
    workload["gradientBytes"] = bytes;
    const std::string file = folder.Write("workload.json", workload.dump());
    return RunMoeplan({"plan", "--profile", profile, "--workload", file, "--json"});
  };
  const Outcome outcome = plan(67108864);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json answer = Json::parse(outcome.out);
  EXPECT_EQ(answer.at("workload").at("gradientBytes"), 67108864);
  EXPECT_THAT(answer.at("explanation").get<std::string>(), HasSubstr("Dense gradients are all-reduced in "));
  for (const Json& candidate : answer.at("candidates")) {
    const Json& gradients = candidate.at("gradients");
    double bytes = 0, end_s = 0;
    for (const Json& slice : gradients.at("slices")) bytes += slice.at("bytes").get<double>();
    for (const Json& task : candidate.at("timeline")) end_s = std::max(end_s, task.at("endS").get<double>());
    EXPECT_EQ(bytes, 67108864);
    EXPECT_EQ(end_s, candidate.at("predictedTimeS"));
    const double exposed_s = gradients.at("exposedS"), hidden_s = gradients.at("hiddenS");
    EXPECT_GT(exposed_s + hidden_s, 67108864 * 4e-11);
  }
  EXPECT_GT(answer.at("best").at("gradients").at("hiddenS"), 0);
  ExpectRefused(plan(-2), "gradientBytes: found -2");
  ExpectRefused(plan(3), "gradientBytes: found 3");
  workload["phase"] = "FORWARD";
  ExpectRefused(plan(1024), "gradientBytes: found 1024, expected 0 in a forward pass");
}

TEST(PlanCommandTest, GradientsWithoutAnAllReduceSayHowToMeasureIt) {
  const TemporaryFolder folder;
  Json workload = Json::parse(ReadFile(kWorkload));
  workload["phase"] = "BACKWARD";
  workload["gradientBytes"] = 67108864;
  const std::string file = folder.Write("workload.json", workload.dump());
  const Outcome outcome = RunMoeplan({"plan", "--profile", kProfile, "--workload", file, "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json answer = Json::parse(outcome.out);
  EXPECT_THAT(answer.at("candidates"), IsEmpty());
  EXPECT_THAT(answer.at("skippedCandidates").dump(),
              AllOf(HasSubstr("ALL_REDUCE groupSize 2 ranksPerNode 1"), HasSubstr("moeplan calibrate")));
}

}  // namespace
}  // namespace moeplan::testing
