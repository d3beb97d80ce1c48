// Logs of nccl-tests, as every version prints them, to samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "models/text.h"
#include "proto/nccl_tests/import.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

template <typename... Values>
std::string Printed(const char* format, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

// ---- Logs written down by hand, one for each form.

// Of 2.13 to 2.17: eight columns of times, 13 in all.
constexpr char kTwoHosts[] =
    R"(# nThread 1 nGpus 1 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid   6899 on     node-a device  0 [0000:04:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   6900 on     node-a device  1 [0000:05:00] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid   6733 on     node-b device  0 [0000:04:00] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid   6734 on     node-b device  1 [0000:05:00] NVIDIA H100 80GB HBM3
NCCL version 2.20.5+cuda12.4
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
     1048576        262144     float     sum      -1    203.2    5.16    7.74      0    207.2    5.06    7.59      0
node-a:6899:6921 [0] NCCL INFO comm 0x55d8db252140 rank 0 nranks 4 - Destroy COMPLETE
     2097152        524288     float     sum      -1    254.0    8.26   12.39      0    252.9    8.29   12.44      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 10.04 
#
)";

// Of 2.18: says its name; an all-to-all has no in-place result to check.
constexpr char kAllToAll[] = R"(# nccl-tests version 2.18.2 nccl-headers=23007 nccl-library=23007
# Collective test starting: alltoall_perf
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0
#
# Using devices
#  Rank  0 Group  0 Pid  15784 on  nid007106 device  0 [0009:01:00] NVIDIA GH200 120GB
#  Rank  1 Group  0 Pid  15784 on  nid007106 device  1 [0019:01:00] NVIDIA GH200 120GB
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong 
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         
           0             0     float    none      -1     4.25    0.00    0.00       0     4.20    0.00    0.00     N/A
     1048576        131072     float    none      -1    33.96   30.88   15.44       0    33.58   31.23   15.61     N/A
     2097152        262144     float    none      -1    50.55   41.49   20.74       0    36.17   57.98   28.99     N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 18.09
#
# Collective test concluded: alltoall_perf
)";

// Of 2.0 to 2.12: 12 columns, the redop of an all-to-all blank, `error` for `#wrong`.
constexpr char kOldAllToAll[] =
    R"(# nThread 1 nGpus 2 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 validation: 1 
#
# Using devices
#   Rank  0 Pid  89207 on    seville device  0 [0xb7] Tesla V100-SXM3-32GB
#   Rank  1 Pid  89207 on    seville device  1 [0xb9] Tesla V100-SXM3-32GB
#
#                                             out-of-place                       in-place          
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
     1048576        131072   float            43.95   23.86   11.93  0e+00    43.58   24.06   12.03    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 11.98 
#
)";

// Likewise an all-gather, which had 11 columns, and whose algbw was size·(n-1)/n / time.
constexpr char kOldAllGather[] =
    R"(# nThread 1 nGpus 2 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 validation: 1 
#
# Using devices
#   Rank  0 Pid  89207 on    seville device  0 [0xb7] Tesla V100-SXM3-32GB
#   Rank  1 Pid  89207 on    seville device  1 [0xb9] Tesla V100-SXM3-32GB
#
#                                    out-of-place                       in-place          
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
     1048576        131072   float    40.00   13.11   13.11  0e+00    41.00   12.79   12.79  0e+00
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 12.95 
#
)";

StatusOr<NcclTestsImport> Import(const std::string& path, const std::string& text, NcclTestsOptions options = {}) {
  const NcclTestsLog log = {path, text};
  return ImportNcclTests({&log, 1}, options);
}

std::vector<double> SizesOf(const NcclTestsImport& import) {
  std::vector<double> sizes;
  for (const Sample& sample : import.samples.samples) sizes.push_back(sample.size);
  return sizes;
}

std::vector<double> TimesOf(const NcclTestsImport& import) {
  std::vector<double> times_s;
  for (const Sample& sample : import.samples.samples) {
    times_s.insert(times_s.end(), sample.times_s.begin(), sample.times_s.end());
  }
  return times_s;
}

void ExpectRefused(const StatusOr<NcclTestsImport>& import, const std::string& what) {
  ASSERT_FALSE(import.ok()) << "expected: " << what;
  EXPECT_EQ(import.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(import.status().message(), HasSubstr(what));
}

std::string With(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

TEST(NcclTestsTest, RanksGiveTheGroupAndTheCluster) {
  const auto import = Import("all_reduce_perf.log", kTwoHosts, {.name = "two"});
  ASSERT_TRUE(import.ok()) << import.status().message();
  const CollectiveKey key = {.collective = Collective::kAllReduce, .group = {.size = 4, .ranks_per_node = 2}};
  ASSERT_THAT(import->samples.samples, SizeIs(2));
  EXPECT_EQ(std::get<CollectiveKey>(import->samples.samples[0].key), key);
  EXPECT_EQ(import->samples.name, "two");
  EXPECT_EQ(import->samples.cluster, (Cluster{.nodes = 2, .gpus_per_node = 2}));
  EXPECT_THAT(SizesOf(*import), ElementsAre(1048576, 2097152));
  EXPECT_THAT(TimesOf(*import), ElementsAre(203.2 * 1e-6, 254.0 * 1e-6));
  EXPECT_EQ(import->samples.samples[0].provenance.at("device"), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(import->samples.samples[0].provenance.at("source"), "all_reduce_perf.log");
  EXPECT_THAT(import->notes, IsEmpty());
}

TEST(NcclTestsTest, InPlaceTimesAreTakenWhenAskedFor) {
  const auto import = Import("all_reduce_perf.log", kTwoHosts, {.in_place = true});
  ASSERT_TRUE(import.ok()) << import.status().message();
  EXPECT_THAT(TimesOf(*import), ElementsAre(207.2 * 1e-6, 252.9 * 1e-6));
  EXPECT_EQ(import->samples.samples[0].provenance.at("times"), "in-place");
}

TEST(NcclTestsTest, TheLimitOnCtasIsPartOfTheKey) {
  const auto import = Import("all_reduce_perf.log", kTwoHosts, {.ctas = 8});
  ASSERT_TRUE(import.ok()) << import.status().message();
  for (const Sample& sample : import->samples.samples) EXPECT_EQ(std::get<CollectiveKey>(sample.key).ctas, 8);
  for (const int wrong : {-1, 1025}) {
    const auto refused = Import("all_reduce_perf.log", kTwoHosts, {.ctas = wrong});
    ExpectRefused(refused, "--ctas: found " + std::to_string(wrong) + ", expected 0 to 1024");
  }
}

TEST(NcclTestsTest, NewLogsNameTheirProgramAndSizeZeroIsNoMeasurement) {
  const auto import = Import("slurm-17.out", kAllToAll);
  ASSERT_TRUE(import.ok()) << import.status().message();
  const CollectiveKey key = {.collective = Collective::kAllToAll, .group = {.size = 2, .ranks_per_node = 2}};
  ASSERT_THAT(import->samples.samples, SizeIs(2));
  EXPECT_EQ(std::get<CollectiveKey>(import->samples.samples[0].key), key);
  EXPECT_THAT(TimesOf(*import), ElementsAre(33.96 * 1e-6, 50.55 * 1e-6));
}

TEST(NcclTestsTest, OldTablesOfTwelveAndElevenColumnsAreRead) {
  const std::vector<NcclTestsLog> logs = {{"v100-alltoall.txt", kOldAllToAll}, {"all_gather.txt", kOldAllGather}};
  const auto import = ImportNcclTests(logs, {});
  ASSERT_TRUE(import.ok()) << import.status().message();
  ASSERT_THAT(import->samples.samples, SizeIs(2));
  EXPECT_EQ(std::get<CollectiveKey>(import->samples.samples[0].key).collective, Collective::kAllToAll);
  EXPECT_EQ(std::get<CollectiveKey>(import->samples.samples[1].key).collective, Collective::kAllGather);
  EXPECT_THAT(TimesOf(*import), ElementsAre(43.95 * 1e-6, 40.00 * 1e-6));
}

TEST(NcclTestsTest, ABlankOutOfPlaceHalfIsNoInPlaceTime) {
  const std::string log =
      With(kTwoHosts, "    203.2    5.16    7.74      0    207.2", std::string(32, ' ') + "    207.2");
  const auto out_of_place = Import("all_reduce_perf.log", log);
  ASSERT_TRUE(out_of_place.ok()) << out_of_place.status().message();
  EXPECT_THAT(SizesOf(*out_of_place), ElementsAre(2097152));
  EXPECT_THAT(out_of_place->notes, ElementsAre(HasSubstr("left out 1 rows without out-of-place time; --in-place")));
  const auto in_place = Import("all_reduce_perf.log", log, {.in_place = true});
  ASSERT_TRUE(in_place.ok()) << in_place.status().message();
  EXPECT_THAT(TimesOf(*in_place), ElementsAre(207.2 * 1e-6, 252.9 * 1e-6));
}

TEST(NcclTestsTest, TagsOfLaunchersAndTimestampsAreTakenOff) {
  for (const char* tag : {"[1,0]<stdout>:", " 0: ", "0: "}) {
    std::string tagged;
    const std::string text = kOldAllToAll;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      tagged += tag + text.substr(at, end - at) + "\r\n";
      at = end + 1;
    }
    const auto import = Import("alltoall_perf.log", tagged);
    ASSERT_TRUE(import.ok()) << tag << import.status().message();
    EXPECT_THAT(TimesOf(*import), ElementsAre(43.95 * 1e-6));
  }
  std::string stamped = With(kTwoHosts, "busbw #wrong\n", "busbw #wrong           timestamp\n");
  stamped = With(stamped, "5.06    7.59      0\n", "5.06    7.59      0  2025-11-03 10:02:44\n");
  const auto import = Import("all_reduce_perf.log", stamped);
  ASSERT_TRUE(import.ok()) << import.status().message();
  EXPECT_THAT(SizesOf(*import), SizeIs(2));
}

TEST(NcclTestsTest, PerIterationColumnsArePassedOver) {
  std::string log = With(kAllToAll, "busbw  #wrong     time   algbw   busbw  #wrong ",
                         "busbw  #wrong    i_min    i_max    i_p99    i_cv%     time   algbw   busbw  #wrong    i_min"
                         "    i_max    i_p99    i_cv% ");
  for (const char* cells :
       {"   15.44       0    33.58   31.23   15.61     N/A", "   20.74       0    36.17   57.98   28.99     N/A"}) {
    std::string more = cells;
    more.insert(more.find("0 ") + 1, "    30.10    40.20    39.90     2.11");
    log = With(log, cells, more + "    30.10    40.20    39.90     2.11");
  }
  log = With(log, "0.00    0.00       0     4.20    0.00    0.00     N/A\n",
             "0.00    0.00       0     4.00     4.10     4.10     1.00     4.20    0.00    0.00     N/A     4.00     "
             "4.10     4.10     1.00\n");
  const auto import = Import("x.log", log);
  ASSERT_TRUE(import.ok()) << import.status().message();
  EXPECT_THAT(TimesOf(*import), ElementsAre(33.96 * 1e-6, 50.55 * 1e-6));
}

TEST(NcclTestsTest, LogsOfOnePointBecomeRepeatsInTheirOrder) {
  const std::string again = With(kTwoHosts, "203.2    5.16", "301.0    3.48");
  const std::vector<NcclTestsLog> logs = {{"b/all_reduce.log", again}, {"a/all_reduce.log", kTwoHosts}};
  const auto import = ImportNcclTests(logs, {});
  ASSERT_TRUE(import.ok()) << import.status().message();
  ASSERT_THAT(import->samples.samples, SizeIs(2));
  EXPECT_THAT(import->samples.samples[0].times_s, ElementsAre(301.0 * 1e-6, 203.2 * 1e-6));
  EXPECT_EQ(import->samples.samples[0].provenance.at("source"), "b/all_reduce.log, a/all_reduce.log");
}

TEST(NcclTestsTest, OneFileMayHoldTheRunsOfSeveralPrograms) {
  const auto import = Import("night.log", std::string("+ ./run.sh\n") + kAllToAll +
                                              With(kAllToAll, "starting: alltoall_perf", "starting: sendrecv_perf"));
  ASSERT_TRUE(import.ok()) << import.status().message();
  EXPECT_THAT(TimesOf(*import), SizeIs(2));
  EXPECT_THAT(import->notes, ElementsAre(AllOf(HasSubstr("night.log:29"), HasSubstr("left out sendrecv_perf"))));
}

TEST(NcclTestsTest, SiblingGroupsAreOneShape) {
  std::string log = kTwoHosts;
  for (const char* rank : {"Rank  2 Group  0", "Rank  3 Group  0"})
    log = With(log, rank, With(rank, "Group  0", "Group  1"));
  const auto import = Import("all_reduce_perf.log", log);
  ASSERT_TRUE(import.ok()) << import.status().message();
  EXPECT_EQ(std::get<CollectiveKey>(import->samples.samples[0].key).group, (GroupShape{2, 2}));
  EXPECT_EQ(import->samples.cluster, (Cluster{.nodes = 2, .gpus_per_node = 2}));
  ExpectRefused(Import("all_reduce_perf.log", With(log, "Rank  3 Group  1", "Rank  3 Group  2")), "side by side");
}

TEST(NcclTestsTest, WhatCannotBeKnownIsAskedFor) {
  ExpectRefused(Import("run.log", kTwoHosts), "run.log:11: found a table whose program is not named");
  ExpectRefused(Import("all_reduce_vs_alltoall.log", kTwoHosts), "--collective");
  EXPECT_TRUE(Import("run.log", kTwoHosts, {.collective = Collective::kAllReduce}).ok());
  ExpectRefused(Import("run.log", kTwoHosts, {.collective = Collective::kAllGather}), "run.log:13: found redop sum");

  std::string bare = kTwoHosts;
  bare.erase(bare.find("#  Rank"), bare.find("NCCL version") - bare.find("#  Rank"));
  ExpectRefused(Import("all_reduce.log", bare), "--group-size and --ranks-per-node");
  const auto import = Import("all_reduce.log", bare, {.group = GroupShape{16, 8}, .nodes = 4});
  ASSERT_TRUE(import.ok()) << import.status().message();
  EXPECT_EQ(import->samples.cluster, (Cluster{.nodes = 4, .gpus_per_node = 8}));
  ExpectRefused(Import("all_reduce.log", kTwoHosts, {.nodes = 1}), "--nodes: found 1, expected at least the 2");
  ExpectRefused(Import("all_reduce.log", bare, {.group = GroupShape{16, 3}}), "to divide the group");
}

TEST(NcclTestsTest, RanksThatMakeNoGroupAreRefused) {
  const auto import = [](const char* what, const char* by) {
    return Import("all_reduce.log", With(kTwoHosts, what, by));
  };
  ExpectRefused(import("#  Rank  1 Group", "#  Ronk  1 Group"), "found 3 rank lines");
  ExpectRefused(import("#  Rank  1 Group", "#  Rank  2 Group"), "found rank 2 twice");
  ExpectRefused(import("node-b device  1", "node-a device  2"), "3 ranks of a group on node-a and 1 on node-b");
  ExpectRefused(import("on     node-b", "on"), "all_reduce.log:6: found");
  ExpectRefused(import("device  1 [0000:05:00] NVIDIA H100", "device  1 [0000:05:00] NVIDIA A100"),
                "expected one kind");
}

TEST(NcclTestsTest, LogsOfOtherDevicesAreNotMixed) {
  const std::vector<NcclTestsLog> logs = {{"all_reduce.log", kTwoHosts}, {"x.log", kAllToAll}};
  ExpectRefused(ImportNcclTests(logs, {}), "import each cluster by itself");
}

TEST(NcclTestsTest, EachMalformedLineIsReportedWithItsNumber) {
  const std::string row =
      "     1048576        262144     float     sum      -1    203.2    5.16    7.74      0    207.2    5.06    7.59   "
      "   0";
  for (const auto& [what, by, why] : std::vector<std::array<const char*, 3>>{
           {"203.2", "2o3.2", "under time"},
           {"203.2", "  nan", "under time"},
           {"203.2", "-03.2", "under time"},
           {"203.2", "103.2", "a time that belongs to size and algbw"},
           {"1048576", "104857x", "expected a row"},
           {"1048576", "1048572", "as many as 262144 elements of float"},
           {"262144", "26.144", "under count"},
           {"float", "12345", "under type"},
           {" sum", "   7", "under redop"},
           {"-1", "-x", "under root"},
           {"7.74      0", "7.74      3", "under #wrong"},
           {"    5.06    7.59      0", "", "the row breaks off"},
           {"    7.59      0", "    7.59      0     12", "at most 13 cells"},
           {"     float     sum", "  float      sum", "13 cells, or fewer"},
       }) {
    std::string bad = With(row, what, by);
    if (std::string(why).starts_with("13 cells")) bad = With(bad, "-1", "  ");
    if (std::string(why) == "expected a row") bad = With(bad, "104857x", "x104857");
    const auto import = Import("all_reduce.log", With(kTwoHosts, row, bad));
    ExpectRefused(import, "all_reduce.log:13: found ");
    ASSERT_FALSE(import.ok());
    EXPECT_THAT(import.status().message(), HasSubstr(why)) << bad;
  }
}

TEST(NcclTestsTest, SeveralMalformedLinesAreToldAtOnce) {
  const std::string log = With(With(kTwoHosts, "203.2", "2o3.2"), "254.0", "25.4.0");
  const auto import = Import("all_reduce.log", log);
  ASSERT_FALSE(import.ok());
  EXPECT_THAT(import.status().message(), AllOf(HasSubstr("all_reduce.log:13: "), HasSubstr("\nall_reduce.log:15: ")));
}

TEST(NcclTestsTest, WhatIsNoMeasurementOfTimesIsRefused) {
  ExpectRefused(Import("all_reduce.log", With(With(kTwoHosts, " time ", "cptim "), "cptim", "cputime")),
                "cputime (-C)");
  ExpectRefused(Import("all_reduce.log", With(kTwoHosts, "(us)  (GB/s)", "(ms)  (GB/s)")), "times in (us)");
  ExpectRefused(Import("all_reduce.log", With(kTwoHosts, "values : 0 OK", "values : 2 FAILED")),
                "all_reduce.log:16: found 2 out of bounds values");
  ExpectRefused(Import("all_reduce.log", With(kTwoHosts, "#       size ", "        size ")),
                "a row outside of a table");
  ExpectRefused(Import("all_reduce.log", With(kTwoHosts, "node-a:6899:6921 [0] NCCL INFO comm", "Segmentation fault")),
                "all_reduce.log:14: found 'Segmentation fault");
  ExpectRefused(Import("all_reduce.log", ""), "found no table");
  ExpectRefused(Import("sendrecv_perf.log", kTwoHosts), "left out sendrecv_perf");
}

TEST(NcclTestsTest, ARowThatNcclTalksIntoIsMalformed) {
  const std::string log = With(kTwoHosts, "-1    203.2", "-1node-a:1:2 [0] NCCL INFO Connected\n    203.2");
  ExpectRefused(Import("all_reduce.log", log), "all_reduce.log:13: found");
}

// ---- -J.

nlohmann::json JsonLog() {
  const auto row = [](double bytes, double time_us) {
    const double rate = bytes / 1e3 / time_us;
    const nlohmann::json times = {{"time", time_us}, {"alg_bw", rate}, {"bus_bw", rate * 7 / 8}, {"nwrong", 0.0}};
    nlohmann::json in_place = times;
    in_place["nwrong"] = nullptr;
    return nlohmann::json{{"size", bytes},        {"count", bytes / 4 / 8},  {"type", "float"},
                          {"redop", "none"},      {"root", "    -1"},        {"out_of_place", times},
                          {"in_place", in_place}, {"actual_iterations", 20}, {"experiment_name", ""}};
  };
  return {{"version", 2},
          {"args", {"./build/all_gather_perf", "-g", "4"}},
          {"env", {"SECRET=1"}},
          {"nccl_version", 23007},
          {"config",
           {{"nthreads", 1},
            {"ngpus", 4},
            {"devices",
             {{{"rank", 0},
               {"group", 0},
               {"pid", 1},
               {"hostname", "a"},
               {"device", 0},
               {"device_hex", "0"},
               {"device_info", "H100"}},
              {{"rank", 4},
               {"group", 0},
               {"pid", 1},
               {"hostname", "b"},
               {"device", 0},
               {"device_hex", "0"},
               {"device_info", "H100"}}}}}},
          {"results", {row(1 << 20, 60.5), row(1 << 21, 80.25)}},
          {"out_of_bounds", {{"count", 0}, {"okay", "true"}}}};
}

TEST(NcclTestsTest, TheJsonFileGivesTheSame) {
  const auto import = Import("out.json", JsonLog().dump());
  ASSERT_TRUE(import.ok()) << import.status().message();
  const CollectiveKey key = {.collective = Collective::kAllGather, .group = {.size = 8, .ranks_per_node = 4}};
  EXPECT_EQ(std::get<CollectiveKey>(import->samples.samples[0].key), key);
  EXPECT_EQ(import->samples.cluster, (Cluster{.nodes = 2, .gpus_per_node = 4}));
  EXPECT_THAT(TimesOf(*import), ElementsAre(60.5 * 1e-6, 80.25 * 1e-6));
  for (const Sample& sample : import->samples.samples) {
    for (const auto& [name, value] : sample.provenance) EXPECT_THAT(value, Not(HasSubstr("SECRET")));
  }
}

TEST(NcclTestsTest, AJsonFileThatIsWrongIsRefusedWithItsPath) {
  const auto import = [](const char* pointer, const nlohmann::json& value) {
    nlohmann::json log = JsonLog();
    log[nlohmann::json::json_pointer(pointer)] = value;
    return Import("out.json", log.dump());
  };
  ExpectRefused(import("/results/1/out_of_place/time", "nan"), "out.json: results[1].out_of_place.time: found");
  ExpectRefused(import("/results/1/out_of_place/time", 1.5), "out.json: results[1]: found 1.5 us");
  ExpectRefused(import("/results/1/out_of_place/cpu_time", 1.5), "cpu_time (-C)");
  ExpectRefused(import("/results/0/in_place/nwrong", 4), "results[0].in_place.nwrong: found 4");
  ExpectRefused(import("/results/0/size", -1), "results[0].size");
  ExpectRefused(import("/results/0/count", 3), "out.json: results[0]: found 1048576 bytes");
  ExpectRefused(import("/results", 3), "results: found something else, expected a list");
  ExpectRefused(import("/config/ngpus", 1e30), "config.ngpus");
  ExpectRefused(import("/config/devices/0/rank", 2147483647), "config.devices[0].rank");
  ExpectRefused(import("/out_of_bounds/count", 1), "out_of_bounds.count: found 1");
  ExpectRefused(Import("out.json", "{\"results\": "), "out.json: found no JSON");
  nlohmann::json unlisted = JsonLog();
  unlisted["results"][1]["out_of_place"] = nullptr;
  const auto half = Import("out.json", unlisted.dump());
  ASSERT_TRUE(half.ok());
  EXPECT_THAT(SizesOf(*half), ElementsAre(1048576));
}

// ---- Random logs, printed in every form.

uint64_t Seed() {
  static const uint64_t seed = TestSeed();
  return seed;
}

struct Point {
  double bytes = 0, out_of_place_us = 0, in_place_us = 0;
};

struct RandomLog {
  std::string text;
  CollectiveKey key;
  std::vector<Point> points;      // As printed.
  std::vector<size_t> row_lines;  // Of the rows, from 1.
};

class LogWriter {
 public:
  explicit LogWriter(std::mt19937_64& random) : random_(random) {}

  RandomLog Write() {
    RandomLog log;
    const auto collective = static_cast<Collective>(Pick(4));
    const int nodes = 1 << Pick(3), each = 2 << Pick(3);
    log.key = {.collective = collective, .group = {.size = nodes * each, .ranks_per_node = each}};
    const bool old = Pick(2) == 0;
    constexpr const char* kNames[] = {"alltoall", "all_gather", "reduce_scatter", "all_reduce"};
    if (!old) Line(Printed("# Collective test starting: %s_perf", kNames[static_cast<int>(collective)]));
    Line("# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor)");
    for (int rank = 0; rank < nodes * each; ++rank) {
      Line(Printed(old ? "#   Rank %2d Pid %6d on %10s device %2d [0x%02x] Tesla V100"
                       : "#  Rank %2d Group  0 Pid %6d on %10s device %2d [0000:%02x:00] Tesla V100",
                   rank, 100 + rank, Printed("host%d", rank / each).c_str(), rank % each, rank % each));
    }
    const bool reduces = collective == Collective::kReduceScatter || collective == Collective::kAllReduce;
    const bool redop = !old || collective != Collective::kAllGather, root = !old;
    const auto prefix = [&](const std::string& size, const std::string& count, const char* type, const char* op,
                            const char* at) {
      std::string cells = Printed("%12s  %12s  %*s", size.c_str(), count.c_str(), old ? 6 : 8, type);
      if (redop) cells += Printed("  %6s", op);
      if (root) cells += Printed("  %6s", at);
      return cells;
    };
    const char* wrong = old ? "error" : "#wrong";
    std::string header = prefix("size", "count", "type", "redop", "root");
    for (int i = 0; i < 2; ++i) header += Printed("  %7s  %6s  %6s  %*s", "time", "algbw", "busbw", old ? 5 : 6, wrong);
    header[0] = '#';
    Line(header);
    std::string units = prefix("(B)", "(elements)", "", "", "");
    for (int i = 0; i < 2; ++i) units += Printed("  %7s  %6s  %6s  %*s", "(us)", "(GB/s)", "(GB/s)", old ? 5 : 6, "");
    units[0] = '#';
    Line(units);
    const int rows = 1 + Pick(9);
    for (int i = 0; i < rows; ++i) {
      const double elements = std::floor(std::exp2(8 + 2 * i + Uniform()));
      const double count = collective == Collective::kAllReduce ? elements * nodes * each : elements;
      Point point = {.bytes = elements * nodes * each * 4};
      const char* none = old && !reduces ? "" : "none";
      std::string row =
          prefix(Printed("%.0f", point.bytes), Printed("%.0f", count), "float", reduces ? "sum" : none, "-1");
      point.out_of_place_us = Half(point.bytes, nodes * each, old, row, false);
      point.in_place_us = Half(point.bytes, nodes * each, old, row, collective == Collective::kAllToAll);
      log.points.push_back(point);
      Line(row);
      log.row_lines.push_back(lines_);
      if (Pick(4) == 0) Line("host0:1:2 [0] NCCL INFO something 1 2 3");
    }
    Line("# Out of bounds values : 0 OK");
    log.text = std::move(text_);
    return log;
  }

 private:
  int Pick(int count) { return static_cast<int>(random_() % count); }
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  void Line(const std::string& line) {
    text_ += line + "\n";
    ++lines_;
  }
  // Four cells; the time as printed.
  double Half(double bytes, int ranks, bool old, std::string& row, bool unchecked) {
    const double time_us = 5 + bytes / 1e4 * (1 + Uniform());
    const std::string time = Printed(time_us < 1e4 ? "%.2f" : time_us < 1e6 ? "%.1f" : "%.0f", time_us);
    const double rate = bytes / 1e3 / time_us * (old ? (ranks - 1.0) / ranks : 1);
    row += Printed("  %7s  %6.2f  %6.2f  %*s", time.c_str(), rate, rate, old ? 5 : 6,
                   unchecked ? "N/A"
                   : old     ? "0e+00"
                             : "0");
    return std::strtod(time.c_str(), nullptr);
  }

  std::mt19937_64& random_;
  std::string text_;
  size_t lines_ = 0;
};

StatusOr<NcclTestsImport> ImportRandom(const RandomLog& log, const std::string& text, bool in_place) {
  return Import("log", text, {.name = "random", .in_place = in_place, .collective = log.key.collective});
}

TEST(NcclTestsRandomTest, EveryFormGivesWhatItPrinted) {
  std::mt19937_64 random(Seed());
  for (int round = 0; round < 2000; ++round) {
    const RandomLog log = LogWriter(random).Write();
    const bool in_place = random() % 2 == 0;
    const auto import = ImportRandom(log, log.text, in_place);
    ASSERT_TRUE(import.ok()) << import.status().message() << "\n" << log.text;
    std::map<double, std::vector<double>> expected_s;
    for (const Point& point : log.points) {
      expected_s[point.bytes].push_back((in_place ? point.in_place_us : point.out_of_place_us) * 1e-6);
    }
    ASSERT_EQ(import->samples.samples.size(), expected_s.size());
    for (const Sample& sample : import->samples.samples) {
      EXPECT_EQ(std::get<CollectiveKey>(sample.key), log.key);
      EXPECT_EQ(sample.times_s, expected_s.at(sample.size)) << log.text;
    }
  }
}

TEST(NcclTestsRandomTest, ALogThatBreaksOffGivesNothingThatWasNotThere) {
  std::mt19937_64 random(Seed() + 1);
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    const RandomLog log = LogWriter(random).Write();
    const size_t begin = random() % 3 == 0 ? random() % log.text.size() : 0;
    const size_t length = random() % (log.text.size() - begin + 1);
    const auto import = ImportRandom(log, log.text.substr(begin, length), /*in_place=*/false);
    if (!import.ok()) continue;
    ++accepted;
    for (const Sample& sample : import->samples.samples) {
      const auto point = std::ranges::find(log.points, sample.size, &Point::bytes);
      ASSERT_NE(point, log.points.end()) << sample.size << "\n" << log.text.substr(begin, length);
      EXPECT_EQ(sample.times_s, std::vector{point->out_of_place_us * 1e-6});
    }
  }
  EXPECT_GT(accepted, 100);
}

TEST(NcclTestsRandomTest, OneBadCellIsReportedWithItsLine) {
  std::mt19937_64 random(Seed() + 2);
  for (int round = 0; round < 2000; ++round) {
    RandomLog log = LogWriter(random).Write();
    const size_t row = log.row_lines[random() % log.row_lines.size()];
    size_t at = 0;
    for (size_t line = 1; line < row; ++line) at = log.text.find('\n', at) + 1;
    std::vector<size_t> filled;
    for (size_t i = at; log.text[i] != '\n'; ++i) {
      if (log.text[i] >= '0' && log.text[i] <= '9') filled.push_back(i);
    }
    log.text[filled[random() % filled.size()]] = '?';
    const auto import = ImportRandom(log, log.text, false);
    ASSERT_FALSE(import.ok()) << log.text;
    EXPECT_THAT(import.status().message(), HasSubstr(StrCat("log:", row, ": found "))) << log.text;
  }
}

TEST(NcclTestsRandomTest, DamagedLogsNeverCrashAndStayValid) {
  std::mt19937_64 random(Seed() + 3);
  for (int round = 0; round < 20000; ++round) {
    static RandomLog log;
    if (round % 50 == 0) log = LogWriter(random).Write();
    std::string text = random() % 8 == 0 ? JsonLog().dump() : log.text;
    for (uint64_t left = 1 + random() % 8; left > 0; --left) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, random() % 20); break;
        case 2: text.insert(at, text, random() % text.size(), random() % 40); break;
        default: text.insert(at, 1, " \t\n#:[]0129-.eN/"[random() % 16]);
      }
      if (text.empty()) text = "#";
    }
    const auto import = ImportRandom(log, text, round % 2 == 0);
    EXPECT_TRUE(!import.ok() || ValidateSamples(import->samples).ok());
  }
}

}  // namespace
}  // namespace moeplan
