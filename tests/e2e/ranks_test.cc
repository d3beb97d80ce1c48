// Commands that start rank processes: the whole loop on this machine, every way to launch, and ranks that die or hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "db/store.h"
#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Pair;
using Json = nlohmann::json;

constexpr const char* kSmallGrid = R"({"workloads": [
  {"name": "tp2", "layer": {"batch": 1, "sequenceLength": 64, "modelDim": 32, "hiddenDim": 64, "experts": 4, "topK": 2,
                            "capacityFactor": 1.0, "bytesPerElement": 4},
   "layout": {"tensorParallel": 2, "expertParallel": 2, "expertShardingParallel": 2}, "minChunkBytes": 512, "maxChunks": 4},
  {"name": "tp1", "layer": {"batch": 2, "sequenceLength": 64, "modelDim": 32, "hiddenDim": 64, "experts": 4, "topK": 1,
                            "capacityFactor": 1.5},
   "layout": {"tensorParallel": 1, "expertParallel": 4}, "minChunkBytes": 512, "maxChunks": 2}]})";

std::string FirstWorkload(const TemporaryFolder& folder) {
  return folder.Write("workload.json", Json::parse(kSmallGrid).at("workloads").at(0).dump());
}

// Of the first sample in a database.
Provenance ProvenanceIn(const std::string& db) {
  const auto calibrations = Store::OpenReadOnly(db)->SamplesOf({});
  EXPECT_TRUE(calibrations.ok()) << calibrations.status().message();
  return calibrations.ok() ? calibrations->at(0).samples.samples.at(0).provenance : Provenance{};
}

std::vector<RunRecord> RunsOfPlan(const std::string& db, std::int64_t plan) {
  const auto runs = Store::OpenReadOnly(db)->RunsOf({plan});
  EXPECT_TRUE(runs.ok()) << runs.status().message();
  return runs.value_or(std::vector<RunRecord>());
}

void ExpectAllGone(const std::vector<pid_t>& processes) {
  // The kernel ends ranks when their parent goes; give it a moment.
  for (const pid_t process : processes) {
    for (int i = 0; i < 400 && Alive(process); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(Alive(process)) << process;
  }
}

bool InsideATask(const Json& trace, const Json& at) {
  return std::ranges::any_of(trace.at("traceEvents"), [&](const Json& event) {
    if (event.at("ph") != "X" || event.at("pid") != at.at("pid") || event.at("tid") != at.at("tid")) return false;
    const double start = event.at("ts"), duration = event.at("dur"), time = at.at("ts");
    return start <= time && time <= start + duration;
  });
}

void ExpectArrowsFromTasksToTasks(const Json& trace) {
  std::map<int, std::pair<Json, Json>> arrows;  // From, to.
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "s") arrows[event.at("id")].first = event;
    if (event.at("ph") == "f") arrows[event.at("id")].second = event;
  }
  EXPECT_GE(arrows.size(), 5U * 4);  // At least gate, dispatch, exchange, expert, combine, in each process.
  for (const auto& [id, ends] : arrows) {
    ASSERT_FALSE(ends.first.is_null() || ends.second.is_null()) << id;
    EXPECT_EQ(ends.first.at("pid"), ends.second.at("pid"));
    EXPECT_LE(ends.first.at("ts").get<double>(), ends.second.at("ts").get<double>()) << "waits for what it depends on";
    EXPECT_TRUE(InsideATask(trace, ends.first) && InsideATask(trace, ends.second)) << id;
  }
}

TEST(LoopTest, MeasurePlanRunAndCompareOnFourLocalRanks) {
  const TemporaryFolder folder;
  const std::string grid = folder.Write("grid.json", kSmallGrid), db = folder / "m.db";
  const Outcome calibrated =
      RunMoeplan({"calibrate", "--local", "4", "--db", db, "--layouts", grid, "--budget", "6s", "--json"});
  ASSERT_EQ(calibrated.exit_code, 0) << calibrated.err;
  EXPECT_THAT(calibrated.err, IsEmpty());  // No progress bar without a terminal.
  const Json profile = Json::parse(calibrated.out);
  EXPECT_EQ(profile.at("name"), "local-1x4");
  EXPECT_EQ(profile.at("cluster").at("gpusPerNode"), 4);
  std::set<std::string> measured;
  for (const Json& entry : profile.at("collectives")) measured.insert(entry.at("collective"));
  for (const Json& entry : profile.at("kernels")) measured.insert(entry.at("kernel"));
  EXPECT_THAT(measured, IsSupersetOf({"ALL_TO_ALL", "ALL_GATHER", "ALL_REDUCE", "EXPERT_GEMM", "GATE", "PERMUTE"}));

  EXPECT_EQ(ProvenanceIn(db)["launch"], "local");

  const Json list = Json::parse(RunMoeplan({"profile", "list", "--db", db, "--json"}).out);
  EXPECT_EQ(list.at("profiles").at(0).at("name"), "local-1x4");
  EXPECT_EQ(list.at("profiles").at(0).at("version"), 1);
  EXPECT_EQ(Json::parse(RunMoeplan({"profile", "show", "--db", db, "--json"}).out), profile);

  const Outcome planned = RunMoeplan({"plan", "--db", db, "--workload", FirstWorkload(folder), "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const std::string plan = folder.Write("plan.json", planned.out);
  const Json answer = Json::parse(planned.out);
  EXPECT_EQ(answer.at("profileVersion"), 1);
  std::set<std::string> schedules;
  for (const Json& candidate : answer.at("candidates")) schedules.insert(candidate.at("schedule"));
  EXPECT_EQ(schedules, (std::set<std::string>{"BASELINE", "BASELINE_TP", "PARM_S1", "PARM_S2", "MONTA_O1", "MONTA_O2",
                                              "MONTA_O3", "PIPELINE"}));

  std::set<int> dropped;
  std::int64_t plans_kept = 0;
  for (const std::string& schedule : schedules) {
    const Outcome ran = RunMoeplan({"run", "--plan", plan, "--local", "4", "--schedule", schedule, "--trace",
                                    folder / "trace.json", "--db", db, "--json"});
    ASSERT_EQ(ran.exit_code, 0) << schedule << ": " << ran.err;
    const Json report = Json::parse(ran.out);
    EXPECT_EQ(report.at("schedule"), schedule);
    EXPECT_LE(report.at("maxRelativeError").get<double>(), 1e-5) << schedule;
    EXPECT_GT(report.at("measuredTimeS").get<double>(), 0);
    EXPECT_EQ(report.at("ranks").size(), 4U);
    dropped.insert(report.at("droppedTokens").get<int>());
    const RunRecord kept = RunsOfPlan(db, ++plans_kept).at(0);
    EXPECT_EQ(kept.schedule, schedule);
    EXPECT_EQ(kept.measured_time_s, report.at("measuredTimeS").get<double>());
    EXPECT_EQ(Json::parse(kept.report), report);
  }
  EXPECT_EQ(dropped.size(), 1U) << "every schedule drops the same tokens";
  EXPECT_GT(*dropped.begin(), 0) << "a capacity factor of 1 drops some";

  Json skewed = Json::parse(kSmallGrid).at("workloads").at(0);
  skewed["routing"] = {{"skew", 1}};
  const Outcome skewed_plan =
      RunMoeplan({"plan", "--db", db, "--workload", folder.Write("skewed.json", skewed.dump()), "--json"});
  ASSERT_EQ(skewed_plan.exit_code, 0) << skewed_plan.err;
  const Outcome skewed_run =
      RunMoeplan({"run", "--plan", folder.Write("skewed_plan.json", skewed_plan.out), "--local", "4", "--json"});
  ASSERT_EQ(skewed_run.exit_code, 0) << skewed_run.err;
  constexpr double kPairs = 2 * 64 * 2;  // Two source batches of 64 tokens have two choices each.
  EXPECT_NEAR(Json::parse(skewed_run.out).at("droppedTokens").get<double>(),
              kPairs * Json::parse(skewed_plan.out).at("routing").at("droppedShare").get<double>(), 15)
      << "tokens are routed as the workload says; evenly routed ones drop " << *dropped.begin();

  const Json trace = Json::parse(ReadFile(folder / "trace.json"));
  std::map<int, std::set<std::string>> tasks;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") tasks[event.at("pid")].insert(event.at("name"));
  }
  ASSERT_EQ(tasks.size(), 5U);  // Predicted, and four ranks.
  EXPECT_EQ(tasks.at(0), tasks.at(1));
  ExpectArrowsFromTasksToTasks(trace);

  const Outcome wrong = RunMoeplan({"run", "--plan", plan, "--local", "2", "--json"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("layout"));
  const Outcome elsewhere = RunMoeplan({"run", "--plan", plan, "--local", "4", "--db", folder / "n.db", "--json"});
  EXPECT_EQ(elsewhere.exit_code, 2) << "the plan's profile is in another database";
  EXPECT_THAT(elsewhere.err, HasSubstr("local-1x4"));
  const Outcome unknown = RunMoeplan({"run", "--plan", plan, "--local", "4", "--schedule", "PARM_S3"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("MONTA_O1"));
}

TEST(LoopTest, ATrainingLayerIsPlannedRunAndCheckedWithItsGradients) {
  const TemporaryFolder folder;
  for (const char* phase : {"TRAINING", "BACKWARD"}) {
    SCOPED_TRACE(phase);
    Json workload = Json::parse(kSmallGrid).at("workloads").at(0);
    workload["phase"] = phase;
    const bool dropless = std::string(phase) == "TRAINING";
    if (dropless) workload["layer"].erase("capacityFactor");
    if (dropless) workload["routing"] = {{"skew", 0.7}};
    if (std::string(phase) == "BACKWARD") workload["layer"]["gate"] = "RANDOM";  // Its gate has no gradient at all.
    const std::string file = folder.Write("workload.json", workload.dump()), db = folder / phase;
    const std::string grid = folder.Write("grid.json", Json{{"workloads", {workload}}}.dump());
    const Outcome calibrated =
        RunMoeplan({"calibrate", "--local", "4", "--db", db, "--layouts", grid, "--budget", "4s", "--json"});
    ASSERT_EQ(calibrated.exit_code, 0) << calibrated.err;
    const Outcome planned = RunMoeplan({"plan", "--db", db, "--workload", file, "--json"});
    ASSERT_EQ(planned.exit_code, 0) << planned.err;
    const Json answer = Json::parse(planned.out);
    EXPECT_EQ(answer.at("workload").at("layer").at("capacityFactor"), dropless ? 0 : 1);
    EXPECT_EQ(answer.at("warnings").dump().find("(dropless)") != std::string::npos, dropless);
    std::set<std::string> kernels;
    const Json profile = Json::parse(calibrated.out);
    for (const Json& entry : profile.at("kernels")) kernels.insert(entry.at("kernel"));
    EXPECT_THAT(kernels, IsSupersetOf({"EXPERT_INPUT_GRADIENT", "EXPERT_WEIGHT_GRADIENT"}));
    const std::string plan = folder.Write("plan.json", planned.out);
    for (const char* schedule : {"BASELINE", "PARM_S1", "PARM_S2", "MONTA_O3", "PIPELINE"}) {
      const Outcome ran = RunMoeplan({"run", "--plan", plan, "--local", "4", "--schedule", schedule, "--json"});
      ASSERT_EQ(ran.exit_code, 0) << schedule << ": " << ran.err;
      const Json report = Json::parse(ran.out);
      EXPECT_LE(report.at("maxRelativeError").get<double>(), 2e-5) << schedule;
      EXPECT_EQ(report.at("droppedTokens").get<int>() == 0, dropless) << schedule;
      int forward = 0, backward = 0;
      for (const Json& timing : report.at("ranks").at(0).at("timeline")) {
        ++(timing.at("task").get<std::string>().starts_with("grad_") ? backward : forward);
      }
      EXPECT_GT(backward, 0);
      EXPECT_EQ(forward > 0, std::string(phase) == "TRAINING") << "only what the phase is about is timed";
    }
  }
}

TEST(LoopTest, GradientsAreMeasuredPlannedAndRunInTheirSlices) {
  const TemporaryFolder folder;
  for (const char* phase : {"TRAINING", "BACKWARD"}) {
    SCOPED_TRACE(phase);
    Json workload = Json::parse(kSmallGrid).at("workloads").at(0);
    workload["phase"] = phase;
    workload["gradientBytes"] = 65536;
    const std::string file = folder.Write("workload.json", workload.dump()), db = folder / phase;
    const std::string grid = folder.Write("grid.json", Json{{"workloads", {workload}}}.dump());
    const Outcome calibrated =
        RunMoeplan({"calibrate", "--local", "4", "--db", db, "--layouts", grid, "--budget", "4s", "--json"});
    ASSERT_EQ(calibrated.exit_code, 0) << calibrated.err;
    const Outcome planned = RunMoeplan({"plan", "--db", db, "--workload", file, "--json"});
    ASSERT_EQ(planned.exit_code, 0) << planned.err;
    const Json answer = Json::parse(planned.out);
    const std::string plan = folder.Write("plan.json", planned.out);
    for (const char* schedule : {"BASELINE", "PARM_S2", "MONTA_O3"}) {
      SCOPED_TRACE(schedule);
      Json expected;
      for (const Json& candidate : answer.at("candidates")) {
        if (expected.is_null() && candidate.at("schedule") == schedule) expected = candidate;
      }
      ASSERT_FALSE(expected.is_null());
      const std::string trace = folder / "trace.json";
      const Outcome ran =
          RunMoeplan({"run", "--plan", plan, "--local", "4", "--schedule", schedule, "--trace", trace, "--json"});
      ASSERT_EQ(ran.exit_code, 0) << ran.err;
      const Json report = Json::parse(ran.out);
      EXPECT_LE(report.at("maxRelativeError").get<double>(), 2e-5);
      std::set<std::string> predicted, slices;
      for (const Json& timing : expected.at("timeline")) predicted.insert(timing.at("task"));
      std::set<std::string> measured;
      for (const Json& timing : report.at("ranks").at(0).at("timeline")) measured.insert(timing.at("task"));
      EXPECT_EQ(measured, predicted);
      for (const std::string& task : measured) {
        if (task.starts_with("dense_gradients.")) slices.insert(task);
      }
      EXPECT_EQ(slices.size(), expected.at("gradients").at("slices").size());
      EXPECT_FALSE(slices.empty());
      EXPECT_THAT(ReadFile(trace), HasSubstr("dense_gradients.1"));
    }
    Json broken = answer;
    broken["candidates"][0]["gradients"]["slices"][0]["bytes"] = 4;
    broken["best"] = broken["candidates"][0];
    const Outcome refused = RunMoeplan({"run", "--plan", folder.Write("broken.json", broken.dump()), "--local", "4"});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr("bytes in all, expected 65536"));
  }
}

TEST(LoopTest, ValidateComparesEveryCandidateAndHoldsItsLimits) {
  const TemporaryFolder folder;
  const std::string grid = folder.Write("grid.json", kSmallGrid), db = folder / "m.db";
  ASSERT_EQ(RunMoeplan({"calibrate", "--local", "4", "--db", db, "--layouts", grid, "--budget", "4s"}).exit_code, 0);
  const std::vector<std::string> command = {"validate", "--workloads", grid, "--local", "4", "--db", db, "--json"};
  const Outcome outcome = RunMoeplan(command);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json report = Json::parse(outcome.out);
  ASSERT_EQ(report.at("workloads").size(), 2U);
  double error_sum = 0, log_speedup = 0;
  for (const Json& workload : report.at("workloads")) {
    const Json& chosen = workload.at("chosen");
    EXPECT_EQ(chosen, workload.at("candidates").at(0));
    const double predicted_s = chosen.at("predictedTimeS"), measured_s = chosen.at("measuredTimeS");
    EXPECT_NEAR(workload.at("predictionError").get<double>(), std::abs(predicted_s - measured_s) / measured_s, 1e-12);
    EXPECT_GE(workload.at("regret").get<double>(), 0);
    error_sum += workload.at("predictionError").get<double>();
    log_speedup += std::log(workload.at("speedupOverBaseline").get<double>());
  }
  EXPECT_NEAR(report.at("predictionErrorP50").get<double>(), error_sum / 2, 1e-12);  // The median of two is their mean.
  EXPECT_NEAR(report.at("speedupOverBaselineMean").get<double>(), std::exp(log_speedup / 2), 1e-12);

  for (int i = 0; i < 2; ++i) {
    const Json& candidates = report.at("workloads").at(i).at("candidates");
    const std::vector<RunRecord> runs = RunsOfPlan(db, i + 1);
    ASSERT_EQ(runs.size(), candidates.size());
    for (size_t j = 0; j < runs.size(); ++j) EXPECT_EQ(Json::parse(runs[j].report), candidates.at(j));
  }

  std::vector<std::string> strict = command;
  strict.insert(strict.end(), {"--max-error", "0", "--top", "1"});
  const Outcome missed = RunMoeplan(strict);
  EXPECT_EQ(missed.exit_code, 1);
  EXPECT_THAT(missed.err, HasSubstr("predictionErrorP50"));
  const Json few = Json::parse(missed.out);
  ASSERT_EQ(few.at("workloads").size(), 2U);
  for (const Json& workload : few.at("workloads")) {
    EXPECT_LE(workload.at("candidates").size(), 3U);  // The best, and at most two baselines.
  }
}

// Limited collectives are free, so that every best plan limits them.
TEST(LoopTest, PlansOfLimitedCtasAreRefusedByRunAndLeftOutByValidateWhereRanksHaveNone) {
  const TemporaryFolder folder;
  const std::string grid = folder.Write("grid.json", kSmallGrid), db = folder / "m.db";
  const Outcome measured =
      RunMoeplan({"calibrate", "--local", "4", "--db", db, "--layouts", grid, "--budget", "4s", "--json"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  Json profile = Json::parse(measured.out);
  const Json unlimited = profile.at("collectives");
  for (Json entry : unlimited) {
    for (const char* form : {"logLog", "interpolated", "efficiency", "fit"}) entry.erase(form);
    entry["alphaBeta"] = {{"alphaS", 1e-9}, {"betaSPerByte", 0}};
    entry["ctas"] = 8;
    profile.at("collectives").push_back(entry);
  }
  const std::string limited = folder.Write("profile.json", profile.dump());
  const Outcome planned = RunMoeplan({"plan", "--profile", limited, "--workload", FirstWorkload(folder), "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(Json::parse(planned.out).at("best").at("communicationCtas"), 8);

  const Outcome run = RunMoeplan({"run", "--plan", folder.Write("plan.json", planned.out), "--local", "4", "--json"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr("communicationCtas: found 8, expected 0"));

  const Outcome validated =
      RunMoeplan({"validate", "--workloads", grid, "--local", "4", "--profile", limited, "--top", "2", "--json"});
  ASSERT_EQ(validated.exit_code, 0) << validated.err;
  for (const Json& workload : Json::parse(validated.out).at("workloads")) {
    EXPECT_GE(workload.at("candidates").size(), 2U);
    for (const Json& candidate : workload.at("candidates")) EXPECT_FALSE(candidate.contains("communicationCtas"));
  }
}

TEST(FaultTest, ARankThatDiesIsNamedAndNothingIsLeftBehind) {
  const TemporaryFolder folder;
  const std::string db = folder / "m.db";
  Process calibrate = Process::Start({"calibrate", "--local", "4", "--db", db, "--budget", "60s", "--json"});
  const std::vector<pid_t> ranks = calibrate.AwaitChildren(4);
  ASSERT_EQ(ranks.size(), 4U);
  kill(ranks[2], SIGKILL);
  const Outcome outcome = calibrate.Finish();
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("rank 2"), HasSubstr("signal 9")));
  ExpectAllGone(ranks);
  if (std::filesystem::exists(db)) {
    EXPECT_EQ(Json::parse(RunMoeplan({"profile", "list", "--db", db, "--json"}).out).at("profiles").size(), 0U);
  }
}

TEST(FaultTest, ARankThatHangsIsNamedWithinTheDeadline) {
  const TemporaryFolder folder;
  Process calibrate =
      Process::Start({"calibrate", "--local", "3", "--db", folder / "m.db", "--budget", "60s", "--deadline", "2s"});
  const std::vector<pid_t> ranks = calibrate.AwaitChildren(3);
  ASSERT_EQ(ranks.size(), 3U);
  std::this_thread::sleep_for(std::chrono::seconds(3));  // Well into measuring; any moment must do.
  kill(ranks[1], SIGSTOP);
  const Outcome outcome = calibrate.Finish();
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("rank 1"), AnyOf(HasSubstr("bytes"), HasSubstr("flops"))));
  ExpectAllGone(ranks);
}

TEST(FaultTest, KillingTheCommandLeavesNoRankBehind) {
  const TemporaryFolder folder;
  std::vector<pid_t> ranks;
  {
    const Process calibrate = Process::Start({"calibrate", "--local", "3", "--db", folder / "m.db"});
    ranks = calibrate.AwaitChildren(3);
    ASSERT_EQ(ranks.size(), 3U);
  }  // SIGKILL.
  ExpectAllGone(ranks);
}

TEST(LaunchTest, LaunchedRanksJoinAndRankZeroPrints) {
  const TemporaryFolder folder;
  const std::vector<std::string> command = {"calibrate", "--launched", "--db",  folder / "m.db",
                                            "--budget",  "2s",         "--json"};
  const auto environment = [](const std::string& rank) {
    return std::map<std::string, std::string>{{"RANK", rank},
                                              {"WORLD_SIZE", "2"},
                                              {"LOCAL_WORLD_SIZE", "2"},
                                              {"MASTER_ADDR", "127.0.0.1"},
                                              {"MOEPLAN_PORT", "29731"}};
  };
  Process one = Process::Start(command, environment("1"));
  Process zero = Process::Start(command, environment("0"));
  const Outcome first = zero.Finish(), second = one.Finish();
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(Json::parse(first.out).at("name"), "cluster-1x2");
  EXPECT_EQ(ProvenanceIn(folder / "m.db")["launch"], "launched");
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.out, IsEmpty());
  const Outcome alone = RunMoeplan({"calibrate", "--launched", "--db", folder / "n.db"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("WORLD_SIZE"));
}

TEST(LaunchTest, AHostfileStartsRanksOverSsh) {
  const TemporaryFolder folder;
  // An ssh that stays here: the last argument is the remote command.
  const std::string ssh = folder.Write("ssh", "#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n");
  chmod(ssh.c_str(), 0755);
  const std::string path = std::filesystem::path(ssh).parent_path().string() + ":" + std::getenv("PATH");
  const std::string hosts = folder.Write("hosts", "# two slots\nlocalhost slots=2\n127.0.0.1 slots=2 max_slots=4\n");
  const Outcome outcome = RunMoeplan(
      {"calibrate", "--hostfile", hosts, "--db", folder / "m.db", "--budget", "2s", "--json"}, {{"PATH", path}});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(Json::parse(outcome.out).at("cluster").at("nodes"), 2);
  EXPECT_EQ(ProvenanceIn(folder / "m.db")["launch"], "hostfile");
  const std::string uneven = folder.Write("uneven", "a slots=2\nb slots=3\n");
  const Outcome refused = RunMoeplan({"calibrate", "--hostfile", uneven, "--db", folder / "m.db"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("uneven:"), HasSubstr("slots=3")));
}

TEST(LaunchTest, EmulatedNodesAreShapedAndLeaveNothingBehind) {
  const TemporaryFolder folder;
  const std::string cluster =
      folder.Write("emulated.json", R"({"nodes": 2, "gpusPerNode": 2, "nic": {"bytesPerS": 2.5e7}})");
  // Messages of 64 KiB to 256 KiB, each rank with a peer on the other node.
  const std::string grid = folder.Write("grid.json", R"({"workloads": [{"name": "wide", "layer": {"batch": 1,
      "sequenceLength": 512, "modelDim": 256, "hiddenDim": 32, "experts": 2, "topK": 1, "capacityFactor": 1.0},
      "layout": {"tensorParallel": 2, "expertParallel": 2, "expertShardingParallel": 2}, "minChunkBytes": 65536}]})");
  Process calibrate = Process::Start(
      {"calibrate", "--emulated", cluster, "--db", folder / "m.db", "--layouts", grid, "--budget", "10s", "--json"});
  const std::vector<pid_t> ranks = calibrate.AwaitChildren(4);
  const Outcome outcome = calibrate.Finish();
  if (outcome.exit_code == 3 && outcome.err.find("needs root") != std::string::npos) GTEST_SKIP() << outcome.err;
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  ExpectAllGone(ranks);
  EXPECT_THAT(ProvenanceIn(folder / "m.db"),
              IsSupersetOf({Pair("launch", "emulated"), Pair("nicBytesPerS", "2.5e+07")}));
  const Json profile = Json::parse(outcome.out);
  for (const Json& entry : profile.at("collectives")) {
    if (entry.at("collective") != "ALL_TO_ALL" || entry.at("ranksPerNode") != 1 || entry.at("contention") != "NONE")
      continue;
    // Half of each rank's bytes cross its NIC; protocol overhead makes it slower than the wire, never faster.
    const double wire_s_per_byte = 0.5 / 2.5e7;
    EXPECT_GE(entry.at("alphaBeta").at("betaSPerByte").get<double>(), 0.9 * wire_s_per_byte);
    EXPECT_LE(entry.at("alphaBeta").at("betaSPerByte").get<double>(), 2 * wire_s_per_byte);
    return;
  }
  FAIL() << "no ALL_TO_ALL between the nodes was measured";
}

}  // namespace
}  // namespace moeplan::testing
