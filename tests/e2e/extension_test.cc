// The examples of docs/extending.md as a library that `moeplan` loads: measured, weighed against what is built in, run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using Json = nlohmann::json;

// Every expert is shared by the two ranks of a node, so that SHARD_GATHER crosses between the nodes half as often.
constexpr const char* kWorkload = R"({"name": "sharded", "layer": {"batch": 1, "sequenceLength": 128, "modelDim": 128,
    "hiddenDim": 32, "experts": 2, "topK": 1, "capacityFactor": 1.0, "bytesPerElement": 4, "expertKind": "SQUARED_RELU"},
    "layout": {"expertParallel": 2, "expertShardingParallel": 2}, "maxPartitionDegree": 1})";
// Small enough that wires, not processors, are what takes time.
constexpr const char* kCluster = R"({"nodes": 2, "gpusPerNode": 2, "nic": {"bytesPerS": 1e6}})";

Outcome RunExtended(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--extension", MOEPLAN_EXAMPLE_EXTENSION});
  return RunMoeplan(arguments);
}

Json Best(const std::string& profile, const std::string& workload) {
  const Outcome planned = RunExtended({"plan", "--profile", profile, "--workload", workload, "--json"});
  EXPECT_EQ(planned.exit_code, 0) << planned.err;
  return Json::parse(planned.out).at("best");
}

// Divides every time in `value`.
void Hasten(Json& value, double factor) {
  static const std::set<std::string> kTimes = {"timeS", "alphaS", "betaSPerByte", "betaSPerFlop"};
  if (value.is_object()) {
    for (auto& [name, member] : value.items()) {
      if (kTimes.contains(name)) member = member.get<double>() / factor;
    }
  }
  if (value.is_structured()) {
    for (Json& member : value) Hasten(member, factor);
  }
}

// `profile` with what matches as many times as fast.
Json Faster(Json profile, double factor, const std::function<bool(const Json& entry)>& matches) {
  int changed = 0;
  for (const char* list : {"collectives", "kernels"}) {
    for (Json& entry : profile.at(list)) {
      if (!matches(entry)) continue;
      ++changed;
      Hasten(entry, factor);
    }
  }
  EXPECT_GT(changed, 0);
  return profile;
}

TEST(ExtensionTest, ThePlannerChoosesAmongMeasuredExtensionsAndTheRanksRunThem) {
  const TemporaryFolder folder;
  const std::string cluster = folder.Write("emulated.json", kCluster), db = folder / "m.db";
  Json workload = Json::parse(kWorkload), lossy = workload;
  lossy["allowLossy"] = true;
  const std::string exact_file = folder.Write("exact.json", workload.dump());
  const std::string lossy_file = folder.Write("lossy.json", lossy.dump());
  const std::string grid = folder.Write("grid.json", Json{{"workloads", {lossy}}}.dump());

  const Outcome calibrated =
      RunExtended({"calibrate", "--emulated", cluster, "--db", db, "--layouts", grid, "--budget", "20s", "--json"});
  if (calibrated.exit_code == 3 && calibrated.err.find("needs root") != std::string::npos)
    GTEST_SKIP() << calibrated.err;
  ASSERT_EQ(calibrated.exit_code, 0) << calibrated.err;
  Json profile = Json::parse(calibrated.out);
  std::set<std::string> measured;
  for (const Json& entry : profile.at("collectives")) measured.insert(entry.at("algorithm"));
  for (const Json& entry : profile.at("kernels")) measured.insert(entry.at("kernel"));
  EXPECT_THAT(measured, IsSupersetOf({"PAIRWISE", "DIRECT", "ENCODE_FP4", "DECODE_FP4", "ENCODE_FP8",
                                      "EXPERT_GEMM_SQUARED_RELU"}));

  // As measured, the schedule that sends half and the codec that sends an eighth win on wires this slow.
  const Outcome planned = RunExtended({"plan", "--db", db, "--workload", lossy_file, "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Json best = Json::parse(planned.out).at("best");
  EXPECT_EQ(best.at("dispatchCodec"), "FP4") << best;
  EXPECT_EQ(best.at("combineCodec"), "FP4") << best;
  // Relays cross as seldom; the profile is left without what they exchange.
  Json& collectives = profile.at("collectives");
  for (size_t i = collectives.size(); i-- > 0;) {
    const Json& entry = collectives.at(i);
    if (entry.at("collective") == "ALL_GATHER" && entry.at("ranksPerNode") < entry.at("groupSize"))
      collectives.erase(i);
  }
  const std::string profile_file = folder.Write("profile.json", profile.dump());
  const Json exact = Best(profile_file, exact_file);
  EXPECT_EQ(exact.at("schedule"), "SHARD_GATHER") << exact;
  EXPECT_EQ(exact.at("dispatchCodec"), "NONE");

  // It is the measurements that decide: with others, other extensions are chosen, or none.
  const Json pairwise =
      Faster(profile, 100, [](const Json& entry) { return entry.value("algorithm", "") == "PAIRWISE"; });
  EXPECT_EQ(Best(folder.Write("pairwise.json", pairwise.dump()), exact_file).at("allToAll"), "PAIRWISE");
  const Json gathers = Faster(profile, 0.001, [](const Json& entry) {
    return entry.value("collective", "") == "ALL_GATHER" || entry.value("collective", "") == "REDUCE_SCATTER";
  });
  EXPECT_NE(Best(folder.Write("gathers.json", gathers.dump()), exact_file).at("schedule"), "SHARD_GATHER");
  const Json slow =
      Faster(profile, 1e-6, [](const Json& entry) { return entry.value("kernel", "").ends_with("_FP4"); });
  EXPECT_NE(Best(folder.Write("slow.json", slow.dump()), lossy_file).at("dispatchCodec"), "FP4");

  // The plan runs, and computes the layer.
  const std::string plan = folder.Write(
      "plan.json", RunExtended({"plan", "--profile", profile_file, "--workload", exact_file, "--json"}).out);
  const Outcome ran = RunExtended({"run", "--plan", plan, "--emulated", cluster, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(Json::parse(ran.out).at("schedule"), "SHARD_GATHER");
  EXPECT_LE(Json::parse(ran.out).at("maxRelativeError").get<double>(), 1e-5);
}

TEST(ExtensionTest, WithoutTheLibraryItsNamesAreUnknown) {
  const TemporaryFolder folder;
  const std::string workload = folder.Write("workload.json", kWorkload);
  const std::string profile = MOEPLAN_TEST_DATA "/contract/profile.example.json";
  const Outcome planned = RunMoeplan({"plan", "--profile", profile, "--workload", workload});
  EXPECT_EQ(planned.exit_code, 2);
  EXPECT_THAT(planned.err, HasSubstr("layer.expertKind: found the string \"SQUARED_RELU\", expected one of FFN"));
}

TEST(ExtensionTest, ALibraryThatIsNoneIsWrongInput) {
  const Outcome missing = RunMoeplan({"profile", "list", "--db", "m.db", "--extension", "/nowhere.so"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("/nowhere.so: found no file"));
  const Outcome other = RunMoeplan({"profile", "list", "--db", "m.db", "--extension", MOEPLAN_PROGRAM});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("expected a shared library compiled against moeplan's headers"));
}

}  // namespace
}  // namespace moeplan::testing
