// Texts such as DeepEP's tests print, in the forms of its versions.
#include "proto/deepep_tests/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/routing/token_copies.h"
#include "models/text.h"
#include "proto/convert/samples.h"

namespace moeplan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kConfig = "[config] num_tokens=4096, hidden=7168, num_topk_groups=2, num_topk=8\n";

StatusOr<DeepEpTestsImport> Read(const std::string& text, DeepEpTestsOptions options = {.group = {16, 8}}) {
  const std::vector<DeepEpTestsLog> logs = {{"ep.log", text}};
  return ImportDeepEpTests(logs, options);
}

double RowBytes(double places) { return 4096.0 * 7168 * 2 * places; }
double OnNodes(int nodes) { return ExpectedPlaces({.experts = 256, .top_k = 8}, nodes); }

TEST(DeepEpTestsTest, BandwidthsBetweenNodesAreOfRowsOnceANode) {
  const auto import = Read(StrCat("[testing] Running with BF16 ... passed\n", kConfig,
                                  "[tuning] SMs 24, NVL chunk 4, RDMA chunk 4: 11.00 GB/s (RDMA), 36.00 GB/s (NVL)\n"
                                  "[tuning] Best dispatch (FP8): SMs 24, NVL chunk 20, RDMA chunk 16: 50.00 GB/s "
                                  "(RDMA), 160.00 GB/s (NVL)\n"
                                  "[tuning] Best dispatch (BF16): SMs 24, NVL chunk 12, RDMA chunk 32: 42.00 GB/s "
                                  "(RDMA), 138.25 GB/s (NVL)\n\n"
                                  "[tuning] Best combine: SMs 24, NVL chunk 3, RDMA chunk 28: 28.00 GB/s (RDMA), "
                                  "90.00 GB/s (NVL)\n"),
                           {.name = "h100", .group = {16, 8}, .transport = Transport::kNvshmem});
  ASSERT_TRUE(import.ok()) << import.status().message();
  ASSERT_EQ(import->samples.samples.size(), 1U);
  const Sample& sample = import->samples.samples[0];
  EXPECT_EQ(Describe(sample.key), "ALL_TO_ALL groupSize 16 ranksPerNode 8 dispatcher DEEPEP transport NVSHMEM");
  EXPECT_DOUBLE_EQ(sample.size, RowBytes(OnNodes(2)));
  const double both_s = RowBytes(OnNodes(2)) * (1 / 42e9 + 1 / 28e9);
  ASSERT_EQ(sample.times_s.size(), 1U);
  EXPECT_NEAR(sample.times_s[0], both_s / 2, 1e-12);
  EXPECT_EQ(sample.provenance.at("source"), "ep.log:2");
  EXPECT_EQ(sample.provenance.at("sms"), "24");
  EXPECT_EQ(import->samples.cluster.nodes, 2);
  EXPECT_EQ(import->samples.cluster.gpus_per_node, 8);
  EXPECT_THAT(import->notes, ElementsAre("ep.log:4: a dispatch that is not in BF16 is left out"));
  EXPECT_TRUE(ValidateSamples(import->samples).ok());
  // And they survive a file.
  const auto again = SamplesFromProto(ToProto(import->samples));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, import->samples);
}

TEST(DeepEpTestsTest, TimesThatAreSaidGoBeforeBandwidths) {
  // 4096 · 7168 · 2 · 1.993 bytes at 42 GB/s are 2.786 ms.
  const auto notified = Read(StrCat(kConfig,
                                    "[tuning] Best dispatch (BF16): SMs 24, NVL chunk 12, RDMA chunk 32: 40 + 2786 us, "
                                    "42.00 GB/s (RDMA), 138.25 GB/s (NVL)\n"
                                    "[tuning] Best combine: SMs 24, NVL chunk 3, RDMA chunk 28, transmit: 4000.00 us, "
                                    "notify: 60.00 us, BW: 29.3 GB/s (RDMA), 95.0 GB/s (NVL)\n"));
  ASSERT_TRUE(notified.ok()) << notified.status().message();
  EXPECT_NEAR(notified->samples.samples[0].times_s[0], (2786e-6 + 40e-6 + 4000e-6 + 60e-6) / 2, 1e-12);
  const auto inside = Read(
      "[config] num_tokens=4096, hidden=7168, num_topk=8\n"
      "[tuning] Best dispatch (BF16): SMs 24, NVL chunk 24, 335.00 GB/s (NVL), t: 928.00 us\n"
      "[tuning] Best combine: SMs 24, NVL chunk 16: 326.00 GB/s (NVL), t: 953.00 us\n",
      {.group = {8, 8}});
  ASSERT_TRUE(inside.ok()) << inside.status().message();
  EXPECT_EQ(Describe(inside->samples.samples[0].key), "ALL_TO_ALL groupSize 8 ranksPerNode 8 dispatcher DEEPEP");
  EXPECT_DOUBLE_EQ(inside->samples.samples[0].size, RowBytes(OnNodes(8)));
  EXPECT_NEAR(inside->samples.samples[0].times_s[0], (928e-6 + 953e-6) / 2, 1e-12);
}

TEST(DeepEpTestsTest, EachNodePrintsItsOwn) {
  const auto line = [](const char* what, int gigabytes_per_s) {
    return StrCat("[tuning] Best ", what, ": SMs 24, NVL chunk 1, RDMA chunk 1: ", gigabytes_per_s, " GB/s (RDMA)\n");
  };
  const auto import = Read(StrCat(kConfig, kConfig, line("dispatch (BF16)", 40), line("dispatch (BF16)", 50),
                                  line("combine", 40), line("combine", 50)));
  ASSERT_TRUE(import.ok()) << import.status().message();
  ASSERT_EQ(import->samples.samples.size(), 1U);
  const std::vector<double>& times_s = import->samples.samples[0].times_s;
  ASSERT_EQ(times_s.size(), 2U);
  EXPECT_NEAR(times_s[0], RowBytes(OnNodes(2)) / 40e9, 1e-12);
  EXPECT_NEAR(times_s[1], RowBytes(OnNodes(2)) / 50e9, 1e-12);
}

// Eight nodes, and a token's experts on four of them.
TEST(DeepEpTestsTest, NodesThatATokenMayReachAreLimitedAsTheTestSays) {
  const auto import = Read(
      "[config] num_tokens=128, hidden=7168, num_topk_groups=4, num_topk=8, num_experts=128\n"
      "[tuning] Best dispatch (BF16): SMs 24, NVL chunk 1, RDMA chunk 1: 40.00 GB/s (RDMA), 90.00 GB/s (NVL)\n"
      "[tuning] Best combine: SMs 24, NVL chunk 1, RDMA chunk 1: 40.00 GB/s (RDMA), 90.00 GB/s (NVL)\n",
      {.group = {64, 8}});
  ASSERT_TRUE(import.ok()) << import.status().message();
  const double places = ExpectedPlaces({.experts = 128, .top_k = 8, .groups = 8, .groups_per_token = 4}, 8);
  EXPECT_LT(places, 4);
  EXPECT_DOUBLE_EQ(import->samples.samples[0].size, 128.0 * 7168 * 2 * places);
}

TEST(DeepEpTestsTest, SizesOfSeveralLogsAreSamplesOfOneKeyAndRepeatsOfOneSize) {
  const auto log = [](int tokens, double gigabytes_per_s) {
    return StrCat("[config] num_tokens=", tokens, ", hidden=7168, num_topk=8\n[tuning] Best dispatch (BF16): SMs 24, ",
                  "RDMA chunk 1: ", gigabytes_per_s,
                  " GB/s (RDMA)\n[tuning] Best combine: SMs 24, RDMA chunk 1: ", gigabytes_per_s, " GB/s (RDMA)\n");
  };
  const std::vector<DeepEpTestsLog> logs = {{"a", log(4096, 40)}, {"b", log(128, 20)}, {"c", log(4096, 41)}};
  const auto import = ImportDeepEpTests(logs, {.group = {16, 8}});
  ASSERT_TRUE(import.ok()) << import.status().message();
  ASSERT_EQ(import->samples.samples.size(), 2U);
  EXPECT_EQ(import->samples.cluster.nodes, 2);
  const auto of_more = ImportDeepEpTests(logs, {.group = {16, 8}, .nodes = 8});
  EXPECT_EQ(of_more->samples.cluster.nodes, 8);
  EXPECT_LT(import->samples.samples[0].size, import->samples.samples[1].size);
  EXPECT_EQ(import->samples.samples[1].times_s.size(), 2U);
}

TEST(DeepEpTestsTest, WhatIsWrongIsNamedWithItsLine) {
  const auto refusal = [](const std::string& text, DeepEpTestsOptions options = {.group = {16, 8}}) {
    const auto import = Read(text, options);
    return import.ok() ? std::string("read") : import.status().message();
  };
  EXPECT_THAT(refusal(""), HasSubstr("found no '[config]'"));
  EXPECT_THAT(refusal("[tuning] Best combine: 4 GB/s (RDMA)\n"), HasSubstr("ep.log:1: found a result without"));
  EXPECT_THAT(refusal("[config] num_tokens=0, hidden=7168, num_topk=8\n"), HasSubstr("ep.log:1: num_tokens: found 0"));
  EXPECT_THAT(refusal("[config] hidden=7168, num_topk=8\n"), HasSubstr("num_tokens: found nothing"));
  EXPECT_THAT(refusal(StrCat(kConfig, "[tuning] Best combine: 4 GB/s (RDMA)\n")),
              HasSubstr("ep.log:2: found a combine without a dispatch in BF16"));
  EXPECT_THAT(refusal(StrCat(kConfig, "[tuning] Best dispatch (BF16): SMs 24: 300 GB/s (NVL)\n")),
              HasSubstr("ep.log:2: found no number of 'GB/s (RDMA)', expected one of test_internode.py, for 2 nodes"));
  EXPECT_THAT(refusal(StrCat(kConfig, "[tuning] Best dispatch (BF16): SMs 24: 42 GB/s (RDMA), 138 GB/s (NVL)\n"),
                      {.group = {8, 8}}),
              HasSubstr("ep.log:2: found a result of test_internode.py, expected one of test_intranode.py"));
  // A log of one node read as one of two.
  EXPECT_THAT(refusal(StrCat(kConfig, "[tuning] Best dispatch (BF16): SMs 24: 10 + 2786 us, 420 GB/s (RDMA)\n")),
              HasSubstr("bytes in that time, expected about 1.2e+08 of 4096 tokens on 16 ranks"));
  EXPECT_THAT(refusal(StrCat(kConfig,
                             "[tuning] Best dispatch (BF16): SMs 24: -9000 + 2786 us, 42 GB/s (RDMA)\n"
                             "[tuning] Best combine: SMs 24: 10 + 2786 us, 42 GB/s (RDMA)\n")),
              HasSubstr("what the tests printed"));
  EXPECT_THAT(refusal(StrCat(kConfig, "[tuning] Best dispatch (BF16): SMs 24: -42 GB/s (RDMA)\n")),
              HasSubstr("found no number of"));
  for (const char* processors : {"-2477780000", "2477780000", "-1", "0", "23.5"}) {
    EXPECT_THAT(refusal(StrCat(kConfig, "[tuning] Best dispatch (BF16): SMs ", processors,
                               ": 42 GB/s (RDMA), 138 GB/s (NVL)\n")),
                HasSubstr("ep.log:2: SMs: found "));
  }
  EXPECT_THAT(refusal(kConfig, {.group = {32, 8}, .nodes = 3}), HasSubstr("--nodes: found 3, expected at least the 4"));
  EXPECT_THAT(refusal(kConfig, {.group = {16, 5}}), HasSubstr("expected experts on at least 2 ranks in whole nodes"));
  EXPECT_THAT(refusal(kConfig, {.group = {16, 8}, .experts = 100}), HasSubstr("expected a multiple of 16 ranks"));
}

}  // namespace
}  // namespace moeplan
