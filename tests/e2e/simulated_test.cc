// Commands on simulated clusters: the whole loop, and files that are wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// Two nodes of two GPUs on a bus, whose links are slow enough for schedules to differ.
Json Cluster() {
  return Json::parse(R"({"name": "two-by-two", "nodes": 2, "gpusPerNode": 2,
    "gpu": {"peakFlopsPerS": 1e13, "gemmEfficiency": 0.7, "memoryBytesPerS": 6e11, "deviceMemoryBytes": 1e10,
            "launchS": 5e-6},
    "gpuLink": {"kind": "SHARED_BUS", "bytesPerS": 1.2e10, "latencyS": 5e-6},
    "nic": {"perNode": 1, "bytesPerS": 1.25e10, "latencyS": 4e-6}})");
}

Json Workload(int tokens, const std::string& phase) {
  return {{"name", "tp2"},
          {"layer",
           {{"batch", 1},
            {"sequenceLength", tokens},
            {"modelDim", 64},
            {"hiddenDim", 128},
            {"experts", 4},
            {"topK", 2},
            {"capacityFactor", 1.0},
            {"bytesPerElement", 4}}},
          {"layout", {{"tensorParallel", 2}, {"expertParallel", 2}, {"expertShardingParallel", 2}}},
          {"phase", phase},
          {"minChunkBytes", 1024},
          {"maxChunks", 4},
          {"maxPartitionDegree", 4}};
}

TEST(SimulatedTest, MeasurePlanRunAndCompare) {
  const TemporaryFolder folder;
  const std::string cluster = folder.Write("cluster.json", Cluster().dump()), db = folder / "m.db";
  const Json small = Workload(64, "TRAINING"), large = Workload(65536, "FORWARD");
  const std::string grid = folder.Write("grid.json", Json({{"workloads", Json::array({small, large})}}).dump());
  const Outcome calibrated =
      RunMoeplan({"calibrate", "--simulated", cluster, "--db", db, "--layouts", grid, "--budget", "20s", "--json"});
  ASSERT_EQ(calibrated.exit_code, 0) << calibrated.err;
  const Json profile = Json::parse(calibrated.out);
  EXPECT_EQ(profile.at("name"), "simulated-two-by-two");
  EXPECT_EQ(profile.at("cluster").at("deviceMemoryBytes"), 1e10);
  EXPECT_EQ(profile.at("cluster").at("nodeLinkBytesPerS"), 1.2e10);
  EXPECT_EQ(profile.at("cluster").at("networkBytesPerS"), 6.25e9) << "half an interface";

  for (const Json& workload : {small, large}) {
    const bool is_small = workload == small;
    const Outcome planned =
        RunMoeplan({"plan", "--db", db, "--workload", folder.Write("workload.json", workload.dump()), "--json"});
    ASSERT_EQ(planned.exit_code, 0) << planned.err;
    const std::string plan = folder.Write("plan.json", planned.out);
    std::vector<std::string> outputs;
    for (int i = 0; i < 2; ++i) {
      const Outcome ran = RunMoeplan({"run", "--plan", plan, "--simulated", cluster, "--json"});
      ASSERT_EQ(ran.exit_code, 0) << ran.err;
      outputs.push_back(ran.out);
    }
    EXPECT_EQ(outputs[0], outputs[1]) << "a simulation is the same each time";
    const Json report = Json::parse(outputs[0]);
    EXPECT_EQ(report.at("valuesComputed"), is_small);
    EXPECT_LE(report.at("maxRelativeError").get<double>(), 1e-5);
    EXPECT_LT(report.at("spreadS").get<double>(), 1e-12);
    const double predicted_s = report.at("predictedTimeS"), measured_s = report.at("measuredTimeS");
    EXPECT_NEAR(predicted_s, measured_s, 0.05 * measured_s);
  }
  const Outcome validated = RunMoeplan({"validate", "--simulated", cluster, "--workloads", grid, "--db", db,
                                        "--max-error", "0.03", "--max-regret", "0.03", "--json"});
  EXPECT_EQ(validated.exit_code, 0) << validated.out << validated.err;

  // On GPUs that hold a few candidates at a time, of the 31 that take 8 GB together.
  Json tight = Cluster();
  tight["gpu"]["deviceMemoryBytes"] = 1.2e9;
  const Outcome in_turn = RunMoeplan(
      {"validate", "--simulated", folder.Write("tight.json", tight.dump()), "--workloads",
       folder.Write("large.json", Json({{"workloads", Json::array({large})}}).dump()), "--db", db, "--json"});
  ASSERT_EQ(in_turn.exit_code, 0) << in_turn.err;
  EXPECT_GT(Json::parse(in_turn.out).at("workloads").at(0).at("candidates").size(), 20U);
}

TEST(SimulatedTest, WhatNoDeviceHoldsIsLeftOutAndTheRestIsMeasured) {
  const TemporaryFolder folder;
  // An all-to-all of 2 · 65536 slots of 64 floats for each of 2 shards is 67 MB, sent and received.
  Json cluster = Cluster();
  cluster["gpu"]["deviceMemoryBytes"] = 1.5e8;
  const std::string grid =
      folder.Write("grid.json", Json({{"workloads", Json::array({Workload(65536, "FORWARD")})}}).dump());
  const Outcome calibrated = RunMoeplan({"calibrate", "--simulated", folder.Write("cluster.json", cluster.dump()),
                                         "--db", folder / "m.db", "--layouts", grid, "--budget", "20s", "--json"});
  ASSERT_EQ(calibrated.exit_code, 0) << calibrated.err;
  EXPECT_THAT(calibrated.err, HasSubstr("left out: ALL_TO_ALL groupSize 2 ranksPerNode 1 from 6.7e+07 bytes on, whose "
                                        "buffers take 1.3e+08 bytes, more than 80 % of cluster.deviceMemoryBytes, "
                                        "which is 1.5e+08"));
  const Json profile = Json::parse(calibrated.out);
  const auto is_measured = [](const Json& entry) {
    return entry.at("collective") == "ALL_TO_ALL" && entry.at("groupSize") == 2;
  };
  EXPECT_TRUE(std::ranges::any_of(profile.at("collectives"), is_measured));
  cluster["gpu"]["deviceMemoryBytes"] = 1;
  const Outcome none = RunMoeplan({"calibrate", "--simulated", folder.Write("cluster.json", cluster.dump()), "--db",
                                   folder / "n.db", "--layouts", grid, "--budget", "20s"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("nothing to measure fits the 1 bytes of cluster.deviceMemoryBytes"));
}

TEST(SimulatedTest, WhatIsWrongInAFileIsNamed) {
  const TemporaryFolder folder;
  const auto refused = [&](const Json& cluster, const std::string& what) {
    const Outcome outcome = RunMoeplan({"calibrate", "--simulated", folder.Write("cluster.json", cluster.dump()),
                                        "--db", folder / "m.db", "--budget", "1s"});
    EXPECT_EQ(outcome.exit_code, 2) << what;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("cluster.json"), HasSubstr(what)));
  };
  Json cluster = Cluster();
  cluster["gpuLink"]["kind"] = "STRING";
  refused(cluster, "gpuLink.kind");
  cluster = Cluster();
  cluster["gpu"]["memoryBytesPerS"] = -1;
  refused(cluster, "gpu.memoryBytesPerS");
  cluster = Cluster();
  cluster["nic"]["bytesPerS"] = 1e-300;
  refused(cluster, "nic.bytesPerS");
  cluster = Cluster();
  cluster["gpuLink"]["latencyS"] = 1e300;
  refused(cluster, "gpuLink.latencyS");
  cluster = Cluster();
  cluster["nodes"] = 0;
  refused(cluster, "nodes");
  cluster = Cluster();
  cluster.erase("nic");
  refused(cluster, "nic");
  const Outcome both = RunMoeplan({"calibrate", "--simulated", folder.Write("cluster.json", Cluster().dump()),
                                   "--backend", "host", "--db", folder / "m.db"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("--backend: found beside --simulated"));
}

TEST(SimulatedTest, TheSimulatorEndsWithTheCommand) {
  const TemporaryFolder folder;
  const Process command = Process::Start({"calibrate", "--simulated", folder.Write("cluster.json", Cluster().dump()),
                                          "--db", folder / "m.db", "--budget", "60s"});
  const std::vector<pid_t> simulator = command.AwaitChildren(1);
  ASSERT_EQ(simulator.size(), 1U);
  kill(command.pid(), SIGKILL);
  for (int i = 0; i < 400 && Alive(simulator[0]); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(Alive(simulator[0]));
}

// On a bus a ring of few transfers all but stands still beside an all-to-all of many: who measures how much it is
// slowed down must keep the all-to-all going until it has ended.
TEST(SimulatedTest, EveryCandidateIsPredictedWhereOneStarvesAnother) {
  const TemporaryFolder folder;
  const std::string cluster = std::string(MOEPLAN_EXAMPLES) + "/cluster.json", db = folder / "m.db";
  Json grid = Json::parse(ReadFile(std::string(MOEPLAN_EXAMPLES) + "/grid-8x4.json"));
  std::erase_if(grid.at("workloads").get_ref<Json::array_t&>(),
                [](const Json& one) { return one.at("name") != "tp2"; });
  const std::string workloads = folder.Write("grid.json", grid.dump());
  const Outcome calibrated =
      RunMoeplan({"calibrate", "--simulated", cluster, "--db", db, "--layouts", workloads, "--budget", "60s"});
  ASSERT_EQ(calibrated.exit_code, 0) << calibrated.err;
  const Outcome validated =
      RunMoeplan({"validate", "--simulated", cluster, "--db", db, "--workloads", workloads, "--json"});
  ASSERT_EQ(validated.exit_code, 0) << validated.err;
  const Json workload = Json::parse(validated.out).at("workloads").at(0);
  ASSERT_GT(workload.at("candidates").size(), 20u);
  for (const Json& candidate : workload.at("candidates")) {
    const double predicted_s = candidate.at("predictedTimeS"), measured_s = candidate.at("measuredTimeS");
    EXPECT_NEAR(predicted_s / measured_s, 1, 0.04) << candidate.dump();
  }
}

}  // namespace
}  // namespace moeplan::testing
