// `moeplan what-if` as scripts use it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

const std::string kContract = std::string(MOEPLAN_TEST_DATA) + "/contract/";
const std::string kProfile = kContract + "profile.example.json";
const std::string kWorkload = kContract + "workload.example.json";

Outcome WhatIf(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"what-if", "--profile", kProfile, "--workload", kWorkload};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunMoeplan(arguments);
}

Json BestOf(const Json& workload) {
  const TemporaryFolder folder;
  const Outcome outcome = RunMoeplan(
      {"plan", "--profile", kProfile, "--workload", folder.Write("w.json", workload.dump()), "--top", "1", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return Json::parse(outcome.out).at("best");
}

// Records of RFC 4180.
std::vector<std::vector<std::string>> ParseCsv(const std::string& text) {
  std::vector<std::vector<std::string>> records(1, {""});
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string& cell = records.back().back();
    if (quoted && text[i] == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      cell += text[i++];
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text[i] == ',') {
      records.back().emplace_back();
    } else if (!quoted && text[i] == '\r') {
      EXPECT_EQ(text[++i], '\n');
      records.push_back({""});
    } else {
      cell += text[i];
    }
  }
  records.pop_back();
  return records;
}

TEST(WhatIfTest, RowsAreWhatPlanSaysOfEachWorkload) {
  const Outcome outcome = WhatIf({"--sweep", "layer.sequenceLength=4096,8192", "--sweep", "maxChunks=2,4", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json rows = Json::parse(outcome.out).at("rows");
  ASSERT_EQ(rows.size(), 4U);
  size_t row = 0;
  for (const int length : {4096, 8192}) {
    for (const int chunks : {2, 4}) {
      Json workload = Json::parse(ReadFile(kWorkload));
      workload["layer"]["sequenceLength"] = length;
      workload["maxChunks"] = chunks;
      const Json best = BestOf(workload);
      EXPECT_EQ(rows[row].at("best"), best);
      EXPECT_EQ(rows[row].at("predictedTimeS"), best.at("predictedTimeS"));
      EXPECT_EQ(rows[row].at("fields"), (Json{{"layer.sequenceLength", length}, {"maxChunks", chunks}}));
      ++row;
    }
  }
}

TEST(WhatIfTest, JsonLinesCarryTheSameRowsOneALine) {
  const std::vector<std::string> sweep = {"--sweep", "layer.topK=1,2,3"};
  const auto with = [&](const char* format) {
    std::vector<std::string> arguments = sweep;
    arguments.emplace_back(format);
    return WhatIf(arguments).out;
  };
  const Json rows = Json::parse(with("--json")).at("rows");
  std::istringstream lines(with("--jsonl"));
  size_t row = 0;
  for (std::string line; std::getline(lines, line); ++row) EXPECT_EQ(Json::parse(line), rows.at(row));
  EXPECT_EQ(row, 3U);
  EXPECT_THAT(rows.at(2).at("reason").get<std::string>(), HasSubstr("layer.topK: found 3"));
  EXPECT_FALSE(rows.at(2).contains("best"));
  EXPECT_FALSE(rows.at(2).contains("predictedTimeS"));
  EXPECT_FALSE(rows.at(0).contains("reason"));
}

TEST(WhatIfTest, CsvQuotesWhatNeedsIt) {
  const Outcome outcome = WhatIf({"--sweep", "name=a \"b\",c", "--sweep", "layer.topK=2,3", "--csv"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto records = ParseCsv(outcome.out);
  ASSERT_THAT(records, SizeIs(5));
  for (const auto& record : records) EXPECT_THAT(record, SizeIs(19)) << outcome.out;
  EXPECT_THAT(outcome.out, ::testing::StartsWith(
                               "name,layer.topK,schedule,chunks,partitionDegree,allToAll,dispatchCodec,combineCodec,"
                               "overlappedGather,chunkShares,predictedTimeS,lowS,highS,communicationTimeS,"
                               "exposedCommunicationS,computeTimeS,memoryBytes,communicationCtas,reason\r\n"));
  EXPECT_EQ(records[1][0], "a \"b\"");
  EXPECT_EQ(records[2][2], "");
  EXPECT_THAT(records[2].back(), HasSubstr("layer.topK: found 3, expected at most"));
  const Json best = BestOf(Json::parse(ReadFile(kWorkload)));
  EXPECT_EQ(records[1][2], best.at("schedule"));
  EXPECT_EQ(std::stod(records[1][10]), best.at("predictedTimeS").get<double>());
}

TEST(WhatIfTest, WhatIsAskedOutsideTheMeasuredRangeIsNamedOnce) {
  const Outcome outcome = WhatIf({"--sweep", "layer.batch=64,65,66", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("; extrapolated (and likewise at 2 more points)\n"));
  std::set<std::string> costs;
  std::istringstream lines(outcome.err);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(costs.insert(line.substr(0, line.find(": asked at"))).second) << line;
  }
}

TEST(WhatIfTest, AFasterNicIsOneFlag) {
  const Outcome outcome = WhatIf({"--sweep", "cluster.nic.scale=1,2", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json rows = Json::parse(outcome.out).at("rows");
  EXPECT_LT(rows[1].at("predictedTimeS").get<double>(), rows[0].at("predictedTimeS").get<double>());
}

TEST(WhatIfTest, ExtrapolatedPointsAreMarked) {
  // The example measures no reduce-scatter, and no expert groups of 4 nodes; 2 nodes have no such data parallelism.
  const std::vector<std::string> sweep = {"--sweep", "cluster.nodes=2,4", "--sweep", "layout.expertParallel=2,4",
                                          "--sweep", "layer.experts=4",   "--sweep", "layout.dataParallel=4"};
  const auto with = [&](const std::string& more) {
    std::vector<std::string> arguments = sweep;
    arguments.insert(arguments.end(), {"--extrapolate", more});
    return WhatIf(arguments);
  };
  const Outcome outcome = with("--json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  int marked = 0;
  const Json answer = Json::parse(outcome.out);
  for (const Json& row : answer.at("rows")) {
    if (row.at("fields").at("cluster.nodes").get<int>() != 4) continue;
    EXPECT_TRUE(row.contains("best")) << row.dump();
    marked += row.value("extrapolated", false);
  }
  EXPECT_EQ(marked, 2);
  EXPECT_THAT(ParseCsv(with("--csv").out).front().back(), "extrapolated");
}

TEST(WhatIfTest, NothingFeasibleIsANoWithItsRows) {
  const Outcome outcome = WhatIf({"--sweep", "cluster.deviceMemoryBytes=1e6,2e6", "--json"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(Json::parse(outcome.out).at("rows").size(), 2U);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("none of the 2 points has a plan"), HasSubstr("deviceMemoryBytes")));
}

TEST(WhatIfTest, WrongCommandLinesPrintNothing) {
  const auto expect_refused = [](const std::vector<std::string>& more, const char* what) {
    const Outcome outcome = WhatIf(more);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err, HasSubstr(what));
  };
  expect_refused({}, "--sweep is required");
  expect_refused({"--sweep", "layer.bacth=1", "--json"}, "did you mean batch?");
  expect_refused({"--sweep", "layer.batch=1,x", "--csv"}, "layer.batch: found the string");
  expect_refused({"--sweep", "layer.batch=1", "--csv", "--json"}, "at most one");
  expect_refused({"--sweep", "layer.batch=1", "--threads", "0"}, "--threads: found 0");
  const Outcome absent =
      RunMoeplan({"what-if", "--profile", kProfile, "--workload", "absent.json", "--sweep", "layer.batch=1"});
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.err, HasSubstr("absent.json"));
}

TEST(WhatIfTest, PeopleGetATable) {
  const Outcome outcome = WhatIf({"--sweep", "layer.topK=2,3"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("layer.topK"), HasSubstr("predicted"), HasSubstr("layer.topK: found 3")));
}

}  // namespace
}  // namespace moeplan::testing
