// The whole loop on the cuda backend, with a card that the CPU plays (tests/gpu/machine_on_cpu) and that all ranks
// share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "db/store.h"
#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

const std::map<std::string, std::string> kCardOnCpu = {{"MOEPLAN_LIBRARY_DIR", MOEPLAN_CARD_ON_CPU}};

constexpr const char* kGrid = R"({"workloads": [
  {"name": "training", "layer": {"batch": 1, "sequenceLength": 32, "modelDim": 16, "hiddenDim": 32, "experts": 4,
                                 "topK": 2, "capacityFactor": 1.0, "expertMatrices": 3},
   "layout": {"tensorParallel": 2, "expertParallel": 2}, "phase": "TRAINING", "minChunkBytes": 512, "maxChunks": 2,
   "maxPartitionDegree": 2}]})";

TEST(CudaTest, MeasurePlanRunAndCompareOnRanksThatShareACard) {
  const TemporaryFolder folder;
  const std::string grid = folder.Write("grid.json", kGrid), db = folder / "m.db";
  const Outcome calibrated = RunMoeplan(
      {"calibrate", "--local", "2", "--backend", "cuda", "--db", db, "--layouts", grid, "--budget", "10s", "--json"},
      kCardOnCpu);
  ASSERT_EQ(calibrated.exit_code, 0) << calibrated.err;
  std::set<std::string> measured;
  const Json profile = Json::parse(calibrated.out);
  for (const char* list : {"collectives", "kernels"}) {
    for (const Json& entry : profile.at(list)) measured.insert(entry.value("collective", entry.value("kernel", "")));
  }
  EXPECT_THAT(measured, ::testing::IsSupersetOf({"ALL_TO_ALL", "ALL_GATHER", "EXPERT_GEMM", "EXPERT_WEIGHT_GRADIENT",
                                                 "GATE", "PERMUTE", "DEVICE_COPY"}));
  const auto calibrations = Store::OpenReadOnly(db)->SamplesOf({});
  ASSERT_TRUE(calibrations.ok()) << calibrations.status().message();
  Provenance facts = calibrations->at(0).samples.samples.at(0).provenance;
  EXPECT_EQ(facts["backend"], "cuda");
  EXPECT_NE(facts["device"], "");

  const Outcome limited = RunMoeplan({"calibrate", "--local", "2", "--backend", "cuda", "--db", db, "--layouts", grid,
                                      "--ctas", "4,8", "--budget", "1s"},
                                     kCardOnCpu);
  EXPECT_EQ(limited.exit_code, 2);
  EXPECT_THAT(limited.err, AllOf(HasSubstr("--ctas: found 4"), HasSubstr("each rank has a GPU for itself")));

  const std::string workload = folder.Write("workload.json", Json::parse(kGrid).at("workloads").at(0).dump());
  const Outcome planned = RunMoeplan({"plan", "--db", db, "--workload", workload, "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const std::string plan = folder.Write("plan.json", planned.out);
  std::set<std::string> schedules;
  const Json answer = Json::parse(planned.out);
  for (const Json& candidate : answer.at("candidates")) schedules.insert(candidate.at("schedule"));
  EXPECT_GE(schedules.size(), 4U);
  for (const std::string& schedule : schedules) {
    const Outcome ran = RunMoeplan(
        {"run", "--plan", plan, "--local", "2", "--backend", "cuda", "--schedule", schedule, "--json"}, kCardOnCpu);
    ASSERT_EQ(ran.exit_code, 0) << schedule << ": " << ran.err;
    const Json report = Json::parse(ran.out);
    EXPECT_LE(report.at("maxRelativeError").get<double>(), 2e-2) << schedule;
    EXPECT_GT(report.at("measuredTimeS").get<double>(), 0);
  }
}

TEST(CudaTest, WithoutItsLibraryTheBackendIsRefusedWithWhatToUse) {
  const TemporaryFolder folder;
  const Outcome refused = RunMoeplan({"calibrate", "--local", "2", "--backend", "cuda", "--db", folder / "m.db"},
                                     {{"MOEPLAN_LIBRARY_DIR", folder / "nowhere"}});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("the cuda backend"), HasSubstr("libmoeplan_cuda.so"), HasSubstr("host backend")));
  const Outcome unknown = RunMoeplan({"calibrate", "--local", "2", "--backend", "abacus", "--db", folder / "m.db"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("found abacus, expected host or cuda"));
}

}  // namespace
}  // namespace moeplan::testing
