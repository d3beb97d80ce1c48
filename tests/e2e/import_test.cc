// From logs of nccl-tests to a plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

template <typename... Values>
std::string Printed(const char* format, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

struct Program {
  const char* name;
  bool reduces;
  int groups;              // Side by side.
  std::vector<int> hosts;  // Of each rank.
  double alpha_us, us_per_byte;
};

std::string LogOf(const Program& program) {
  std::string log = Printed(
      "# nccl-tests version 2.18.2 nccl-headers=23007 nccl-library=23007\n# Collective test starting: %s\n"
      "# nThread 1 nGpus 1 minBytes 1024 maxBytes 67108864 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 "
      "validation: 1 graph: 0 unalign: 0\n#\n# Using devices\n",
      program.name);
  const int ranks = static_cast<int>(program.hosts.size());
  for (int rank = 0; rank < ranks; ++rank) {
    log += Printed("#  Rank %2d Group %2d Pid %6d on %10s device %2d [0000:%02x:00] NVIDIA H100\n", rank,
                   rank % program.groups, 100 + rank, Printed("node%d", program.hosts[rank]).c_str(), rank % 2, rank);
  }
  log += "#\n";
  log += Printed("# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place          \n", "",
                 "", "", "", "");
  const auto line = [&](const char* size, const char* count, const char* type, const char* redop, const char* root,
                        const char* time, const char* rate, const char* wrong) {
    log += Printed("# %10s  %12s  %8s  %6s  %6s", size, count, type, redop, root);
    for (int i = 0; i < 2; ++i)
      log += Printed("  %7s  %6s  %6s  %6s", time, rate[0] == 'b' ? "algbw" : rate, rate[0] == 'b' ? "busbw" : rate,
                     wrong);
    log += "\n";
  };
  line("size", "count", "type", "redop", "root", "time", "bw", "#wrong");
  line("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "");
  const int group = ranks / program.groups;
  for (double bytes = 1024; bytes <= 67108864; bytes *= 2) {
    const double time_us = program.alpha_us + program.us_per_byte * bytes;
    const double count = bytes / 4 / (std::string(program.name) == "all_reduce_perf" ? 1 : group);
    log += Printed("%12.0f  %12.0f  %8s  %6s  %6s", bytes, count, "float", program.reduces ? "sum" : "none", "-1");
    for (int i = 0; i < 2; ++i) {
      log += Printed("  %7.2f  %6.2f  %6.2f  %6s", time_us, bytes / 1e3 / time_us, bytes / 1e3 / time_us, "0");
    }
    log += "\n";
  }
  return log + Printed(
                   "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 10.0 \n#\n"
                   "# Collective test concluded: %s\n\n",
                   program.name);
}

// A cluster of two nodes of two GPUs; links inside a node are ten times as fast.
const std::vector<Program> kPrograms = {
    {"alltoall_perf", false, 2, {0, 0, 1, 1}, 20, 4e-5},   // EP: two groups of one rank on each node.
    {"alltoall_perf", false, 1, {0, 0, 1, 1}, 25, 5e-5},   // EP&ESP.
    {"all_gather_perf", false, 2, {0, 1, 0, 1}, 8, 4e-6},  // MP: a group on each node.
    {"reduce_scatter_perf", true, 2, {0, 1, 0, 1}, 8, 4e-6}, {"all_reduce_perf", true, 2, {0, 1, 0, 1}, 12, 8e-6},
};

// What no log has: the experts' products, at 100 Tflop/s and 10 µs.
Json GemmSamples(const Json& cluster) {
  Json samples = Json::array();
  for (double flops = 1e7; flops < 1e13; flops *= 4) {
    samples.push_back({{"kernel", "EXPERT_GEMM"}, {"flops", flops}, {"timeS", {1e-5 + flops / 1e14}}});
  }
  return {{"name", "gemm"}, {"cluster", cluster}, {"samples", samples}};
}

TEST(ImportTest, LogsAndAGemmCurveMakeAPlan) {
  const TemporaryFolder folder;
  std::vector<std::string> command = {"import", "nccl-tests", "--json", "--name", "from-logs"};
  for (size_t i = 0; i < kPrograms.size(); ++i) {
    command.push_back(folder.Write("run" + std::to_string(i) + ".log", LogOf(kPrograms[i])));
  }
  const Outcome imported = RunMoeplan(command);
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_THAT(imported.err, IsEmpty());
  const Json samples = Json::parse(imported.out);
  EXPECT_EQ(samples.at("cluster").at("nodes"), 2);
  EXPECT_EQ(samples.at("cluster").at("gpusPerNode"), 2);
  EXPECT_EQ(samples.at("samples").size(), 5U * 17);

  const Outcome fitted = RunMoeplan({"fit", "--samples", folder.Write("nccl.json", imported.out), "--samples",
                                     folder.Write("gemm.json", GemmSamples(samples.at("cluster")).dump()), "--json"});
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  const Json profile = Json::parse(fitted.out);
  ASSERT_EQ(profile.at("collectives").size(), 5U);
  const Json& line = profile.at("collectives").at(0).at("alphaBeta");  // EP: 20 µs and 40 ps a byte.
  EXPECT_NEAR(line.at("alphaS").get<double>(), 20e-6, 0.02 * 20e-6);
  EXPECT_NEAR(line.at("betaSPerByte").get<double>(), 4e-11, 0.02 * 4e-11);

  const std::string workload = folder.Write("workload.json", R"({"layer": {"batch": 4, "sequenceLength": 2048,
      "modelDim": 4096, "hiddenDim": 8192, "experts": 4, "topK": 2, "capacityFactor": 1.25},
      "layout": {"tensorParallel": 2, "expertParallel": 2, "expertShardingParallel": 2}})");
  const Outcome planned =
      RunMoeplan({"plan", "--profile", folder.Write("profile.json", fitted.out), "--workload", workload, "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Json answer = Json::parse(planned.out);
  EXPECT_TRUE(answer.contains("best"));
  EXPECT_EQ(answer.at("profileName"), "from-logs");
  for (const char* rule : {"parm", "monta", "schemoe"}) EXPECT_TRUE(answer.at("rules").contains(rule)) << rule;
  std::set<std::string> schedules;
  for (const Json& plan : answer.at("candidates")) schedules.insert(plan.at("schedule"));
  for (const char* schedule : {"BASELINE", "BASELINE_TP", "PARM_S1", "PARM_S2", "MONTA_O1", "PIPELINE"}) {
    EXPECT_TRUE(schedules.contains(schedule)) << schedule << " " << answer.at("skippedCandidates").dump();
  }
}

TEST(ImportTest, LimitedCtasBecomeEntriesOfTheirOwn) {
  const TemporaryFolder folder;
  const std::string log = folder.Write("a.log", LogOf(kPrograms[1]));
  const Outcome unlimited = RunMoeplan({"import", "nccl-tests", log, "--json"});
  const Outcome limited = RunMoeplan({"import", "nccl-tests", log, "--ctas", "8", "--json"});
  ASSERT_EQ(limited.exit_code, 0) << limited.err;
  const Outcome fitted = RunMoeplan({"fit", "--samples", folder.Write("unlimited.json", unlimited.out), "--samples",
                                     folder.Write("limited.json", limited.out), "--json"});
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  const Json entries = Json::parse(fitted.out).at("collectives");
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_FALSE(entries.at(0).contains("ctas"));
  EXPECT_EQ(entries.at(1).at("ctas"), 8);
  const Outcome refused = RunMoeplan({"import", "nccl-tests", log, "--ctas", "1025", "--json"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.out, IsEmpty());
  EXPECT_THAT(refused.err, HasSubstr("--ctas: found 1025, expected 0 to 1024"));
}

TEST(ImportTest, AMalformedLineIsNamedAndNothingPrinted) {
  const TemporaryFolder folder;
  std::string log = LogOf(kPrograms[0]);
  const size_t row = log.find("        2048 ");
  log.replace(row, 12, "        20x8");
  const Outcome outcome = RunMoeplan({"import", "nccl-tests", folder.Write("bad.log", log), "--json"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, HasSubstr("bad.log:15: found "));
}

TEST(ImportTest, WhatIsLeftOutIsSaidOnStandardError) {
  const TemporaryFolder folder;
  Program broadcast = kPrograms[1];
  broadcast.name = "broadcast_perf";
  const std::string a = folder.Write("a.log", LogOf(kPrograms[1])), b = folder.Write("b.log", LogOf(broadcast));
  const Outcome both = RunMoeplan({"import", "nccl-tests", a, b});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("ALL_TO_ALL groupSize 4 ranksPerNode 2"));
  EXPECT_THAT(both.err, HasSubstr("left out broadcast_perf"));
  EXPECT_EQ(RunMoeplan({"import", "nccl-tests", b}).exit_code, 2);
  EXPECT_THAT(RunMoeplan({"import", "nccl-tests", folder / "absent.log"}).err,
              HasSubstr("expected a log of nccl-tests"));
  EXPECT_THAT(RunMoeplan({"import", "nccl-tests", a, "--collective", "ALL"}).err, HasSubstr("--collective: found ALL"));
}

TEST(ImportTest, ATraceBecomesAGraphThatIsPlannedWithoutAProfile) {
  const TemporaryFolder folder;
  const std::string trace = MOEPLAN_TEST_DATA "/kineto/h100.json";
  const Outcome imported = RunMoeplan({"import", "kineto", trace, "--ranks-per-node", "8", "--json"});
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_THAT(imported.err, HasSubstr("moeplan: ProfilerStep#3 (of 2 steps): 31 kernels in 27 instructions"));
  EXPECT_EQ(Json::parse(imported.out).at("instructions").size(), 27U);
  const std::string graph = folder.Write("graph.json", imported.out);
  const Outcome planned = RunMoeplan({"plan", "--graph", graph, "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Json plan = Json::parse(planned.out).at("rules").at("lancet");
  // The traced step took 1084 us from the first kernel to the last. The head's weight gradient, 52 us, runs beside an
  // all-to-all of 95 or 105 us; the other comes behind both.
  EXPECT_NEAR(plan.at("unscheduledTimeS").get<double>(), 1084e-6, 1e-9);
  EXPECT_NEAR(plan.at("timeS").get<double>(), 1032e-6, 1e-9);
  EXPECT_EQ(plan.at("partitions").size(), 0U);
  ASSERT_EQ(plan.at("weightGradients").size(), 1U);

  const Outcome in_words = RunMoeplan({"import", "kineto", trace});
  EXPECT_EQ(in_words.exit_code, 0);
  EXPECT_THAT(in_words.out, HasSubstr("BACKWARD ALL_TO_ALL"));
  // Parts take a time that no trace has.
  const Outcome cut = RunMoeplan({"import", "kineto", trace, "--max-parts", "4", "--json"});
  const Outcome refused = RunMoeplan({"plan", "--graph", folder.Write("cut.json", cut.out), "--json"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("partTimesS of 2 parts"));
}

TEST(ImportTest, WhatIsNoTraceIsNamedAndNothingPrinted) {
  const TemporaryFolder folder;
  const std::string half = folder.Write("half.json", "{\"traceEvents\": [\n{\"ph\": \"X\", ");
  for (const auto& [arguments, error] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{half}, half + ": line 2: found the end, expected the rest of a trace"},
           {{folder / "absent"}, "absent: found no readable file"},
           {{MOEPLAN_TEST_DATA "/kineto/h100.json", "--step", "7"}, "moeplan: --step: found 7, expected one of the 2"},
           {{MOEPLAN_TEST_DATA "/kineto/h100.json", "--rank", "7"}, "moeplan: --rank: found 7, expected 0"}}) {
    std::vector<std::string> command = {"import", "kineto", "--json"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Outcome outcome = RunMoeplan(command);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err, HasSubstr(error));
  }
}

}  // namespace
}  // namespace moeplan::testing
