// What every command does when its answer cannot be written, and when it may not have the memory it asks for.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "db/store.h"
#include "tests/e2e/moeplan_process.h"

namespace moeplan::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;
using Command = std::vector<std::string>;

const std::string kContract = std::string(MOEPLAN_TEST_DATA) + "/contract/";
const std::string kExamples = std::string(MOEPLAN_EXAMPLES) + "/";

std::string Words(const Command& command) {
  std::string words;
  for (const std::string& word : command) words += (words.empty() ? "" : " ") + word;
  return words;
}

// A database with a profile and a sample that was set aside.
std::string Database(const TemporaryFolder& folder) {
  const std::string path = folder / "m.db";
  auto store = Store::Open(path);
  EXPECT_TRUE(store.ok()) << store.status().message();
  Profile profile = {.name = "a", .cluster = {.nodes = 1, .gpus_per_node = 1}};
  profile.kernels.push_back({{.kernel = Kernel::kGate}, MakeCostModel(AlphaBeta{1e-6, 1e-12})});
  SampleBatch batch = {.request_id = "1", .samples = {.name = "a", .cluster = profile.cluster}};
  batch.samples.samples = {{.key = KernelKey{.kernel = Kernel::kGate}, .size = 1024, .times_s = {std::nan("")}}};
  batch.rejected = {{.sample = 0, .reason = "timeS[0]: found nan"}};
  EXPECT_TRUE(store->AppendSamples({&batch, 1}).ok());
  EXPECT_TRUE(store->SaveProfile(profile).ok());
  return path;
}

// One simulated node of two GPUs, and a grid with a small workload of it.
std::string Cluster(const TemporaryFolder& folder) {
  return folder.Write("cluster.json", R"({"name": "pair", "nodes": 1, "gpusPerNode": 2,
    "gpu": {"peakFlopsPerS": 1e13, "gemmEfficiency": 0.7, "memoryBytesPerS": 6e11, "deviceMemoryBytes": 1e10,
            "launchS": 5e-6},
    "gpuLink": {"kind": "SHARED_BUS", "bytesPerS": 1.2e10, "latencyS": 5e-6},
    "nic": {"perNode": 1, "bytesPerS": 1.25e10, "latencyS": 4e-6}})");
}
Json SmallWorkload() {
  return Json::parse(R"({"name": "small", "layer": {"batch": 1, "sequenceLength": 64, "modelDim": 64, "hiddenDim": 128,
    "experts": 2, "topK": 1, "capacityFactor": 1.0, "bytesPerElement": 4}, "layout": {"expertParallel": 2},
    "minChunkBytes": 1024, "maxChunks": 2, "maxPartitionDegree": 2})");
}

// What is measured, planned and run on that node.
struct SmallCluster {
  explicit SmallCluster(const TemporaryFolder& folder)
      : cluster(Cluster(folder)),
        grid(folder.Write("grid.json", Json({{"workloads", {SmallWorkload()}}}).dump())),
        db(folder / "small.db") {
    const Outcome calibrated =
        RunMoeplan({"calibrate", "--simulated", cluster, "--db", db, "--layouts", grid, "--budget", "5s"});
    EXPECT_EQ(calibrated.exit_code, 0) << calibrated.err;
    const std::string workload = folder.Write("small.json", SmallWorkload().dump());
    const Outcome planned = RunMoeplan({"plan", "--db", db, "--workload", workload, "--json"});
    EXPECT_EQ(planned.exit_code, 0) << planned.err;
    plan = folder.Write("plan.json", planned.out);
  }

  const std::string cluster, grid, db;
  std::string plan;
};

// Every command that answers at once, in each form of its answer; `planner` is the address of one.
std::vector<Command> Commands(const TemporaryFolder& folder, const std::string& planner) {
  const std::string profile = kContract + "profile.example.json", workload = kContract + "workload.example.json";
  const std::string graph = folder.Write("graph.json", R"({"instructions": [
      {"id": "a", "op": "ALL_TO_ALL", "phase": "BACKWARD", "timeS": 6, "outputs": ["x"]},
      {"id": "dw", "op": "MATMUL", "phase": "BACKWARD", "timeS": 5, "weightGradient": true}]})");
  const std::string samples = folder.Write("samples.json", R"({"name": "s", "cluster": {"nodes": 1, "gpusPerNode": 1},
      "samples": [{"kernel": "GATE", "bytes": 1024, "timeS": [1e-5]}, {"kernel": "GATE", "bytes": 4096,
      "timeS": [2e-5]}]})");
  const std::string log = folder.Write("nccl.log", R"(# nThread 1 nGpus 1 minBytes 1024 maxBytes 4096 step: 2(factor)
# Using devices
#  Rank  0 Group  0 Pid 1 on node0 device  0 [0x00] H100
#  Rank  1 Group  0 Pid 2 on node0 device  1 [0x00] H100
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        1024           256     float    none      -1    10.00    0.10    0.05      0    10.00    0.10    0.05      0
        4096          1024     float    none      -1    12.00    0.34    0.17      0    12.00    0.34    0.17      0
)");
  const std::string db = Database(folder);
  const Command plan = {"plan", "--profile", profile, "--workload", workload};
  const Command sweep = {"what-if", "--profile", profile, "--workload", workload, "--sweep", "layer.batch=1,2"};
  const Command layout = {"layout",
                          "--profile",
                          kExamples + "profile-8x8.json",
                          "--model",
                          kExamples + "mixtral-8x7b.config.json",
                          "--gpus",
                          "64",
                          "--global-batch",
                          "64",
                          "--sequence-length",
                          "4096"};
  std::vector<Command> commands = {
      {"--help"},
      {"--version"},
      {"plan", "--help"},
      plan,
      sweep,
      layout,
      {"plan", "--graph", graph},
      {"fit", "--samples", samples},
      {"import", "nccl-tests", "--collective", "ALL_GATHER", log},
      {"profile", "list", "--db", db},
      {"profile", "show", "--db", db},
      {"profile", "rejected", "--db", db},
      {"profile", "prune", "--db", db, "--keep", "1"},
  };
  for (size_t i = 3, all = commands.size(); i < all; ++i) {
    commands.push_back(commands[i]);
    commands.back().emplace_back("--json");
  }
  for (const char* form : {"--csv", "--jsonl"}) {
    commands.push_back(sweep);
    commands.back().emplace_back(form);
  }
  commands.push_back({"profile", "backup", "--db", db, "--to", folder / "copy.db", "--json"});
  commands.push_back({"graph", "--profile", kExamples + "profile-2x8.json", "--model", kExamples + "gpt2-s-moe.json",
                      "--batch", "24", "--sequence-length", "512", "--expert-parallel", "16", "--gate", "SWITCH"});
  commands.push_back({"token", "create", "--db", db, "--name", "t"});
  commands.push_back({"token", "list", "--db", db});
  commands.push_back({"call", "ListProfiles", "{}", "--planner", planner});
  commands.push_back({"plan", "--planner", planner, "--profile-name", "example", "--workload", workload, "--json"});
  commands.push_back({"serve", "--db", folder / "served.db", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"});
  return commands;
}

int Occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

void ExpectUnwritten(const Command& command, int out) {
  const Outcome outcome = Process::Start(command, {}, {.out = out}).Finish(std::chrono::seconds(60));
  EXPECT_EQ(outcome.exit_code, 3) << Words(command) << ": " << outcome.err;
  EXPECT_EQ(Occurrences(outcome.err, "moeplan: standard output cannot be written"), 1)
      << Words(command) << ": " << outcome.err;
}

class OutputTest : public ::testing::Test {
 protected:
  OutputTest()
      : server_(Process::Start(
            {"serve", "--db", folder_ / "planner.db", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"})),
        planner_(AwaitAddress(server_)) {
    EXPECT_FALSE(planner_.empty());
    const Json put = {{"requestId", "1"}, {"profile", Json::parse(ReadFile(kContract + "profile.example.json"))}};
    Json named = put;
    named["profile"]["name"] = "example";
    const Outcome stored = RunMoeplan({"call", "PutProfile", named.dump(), "--planner", planner_});
    EXPECT_EQ(stored.exit_code, 0) << stored.err;
  }

  const TemporaryFolder folder_;
  Process server_;
  const std::string planner_;
};

TEST_F(OutputTest, ADiskWithoutRoomEndsEveryCommandWith3) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  for (const Command& command : Commands(folder_, planner_)) ExpectUnwritten(command, full);
  close(full);
}

TEST_F(OutputTest, AReaderThatLeftEndsEveryCommandWith3) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  close(ends[0]);
  for (const Command& command : Commands(folder_, planner_)) ExpectUnwritten(command, ends[1]);
  close(ends[1]);
}

TEST_F(OutputTest, AClosedStandardOutputIsNotTheDatabase) {
  for (const Command& command : Commands(folder_, planner_)) ExpectUnwritten(command, Confinement::kClosed);
  // Nothing was printed into it under the number of standard output.
  EXPECT_EQ(RunMoeplan({"profile", "list", "--db", folder_ / "m.db"}).exit_code, 0);
}

TEST(OutputOfRanksTest, WhatWasMeasuredAndIsNotWrittenEndsWith3) {
  const TemporaryFolder folder;
  const SmallCluster small(folder);
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  const Command calibrate = {"calibrate", "--simulated", small.cluster, "--db", folder / "again.db",
                             "--layouts", small.grid,    "--budget",    "5s"};
  const Command run = {"run", "--plan", small.plan, "--simulated", small.cluster};
  const Command validate = {"validate", "--simulated", small.cluster, "--workloads", small.grid, "--db", small.db};
  for (Command command : {calibrate, run, validate}) {
    ExpectUnwritten(command, full);
    command.emplace_back("--json");
    ExpectUnwritten(command, full);
  }
  close(full);
}

TEST(OutputOfRanksTest, ATraceThatIsNotWrittenEndsWith3AndReplacesNoDevice) {
  const TemporaryFolder folder;
  const SmallCluster small(folder);
  // A link, so that what replaces it is not the device itself.
  const std::string trace = folder / "trace.json";
  ASSERT_EQ(symlink("/dev/full", trace.c_str()), 0);
  const Outcome outcome =
      RunMoeplan({"run", "--plan", small.plan, "--simulated", small.cluster, "--trace", trace, "--json"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, HasSubstr(trace + ": cannot be written"));
  struct stat found = {};
  ASSERT_EQ(stat(trace.c_str(), &found), 0);
  EXPECT_TRUE(S_ISCHR(found.st_mode));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // It wants terabytes of address space for itself.
#else
constexpr bool kSanitized = false;
#endif

// From what the loader needs to what every command runs in: each ends by itself, with its answer or with one message.
TEST(MemoryTest, NoLimitOfMemoryMakesACommandHang) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's shadow has no place under a limit";
  const TemporaryFolder folder;
  const SmallCluster small(folder);
  const std::string profile = kContract + "profile.example.json", workload = kContract + "workload.example.json";
  const std::vector<Command> commands = {
      {"plan", "--profile", profile, "--workload", workload, "--json"},
      {"what-if", "--profile", profile, "--workload", workload, "--sweep", "layer.batch=1,2,4,8", "--json"},
      {"profile", "list", "--db", small.db, "--json"},
      {"run", "--plan", small.plan, "--simulated", small.cluster, "--json"},
      {"run", "--plan", small.plan, "--local", "2", "--json"},
      {"call", "ListProfiles", "{}", "--planner", "127.0.0.1:1"},
  };
  for (const size_t megabytes : {90, 100, 115, 150, 250}) {
    for (const Command& command : commands) {
      const Outcome outcome =
          Process::Start(command, {}, {.address_space_bytes = megabytes << 20}).Finish(std::chrono::seconds(30));
      SCOPED_TRACE(std::to_string(megabytes) + " MiB: " + Words(command) + ": " + outcome.err);
      if (outcome.exit_code == 127) continue;  // The loader itself had no room.
      EXPECT_TRUE(outcome.exit_code == 0 || outcome.exit_code == 3) << outcome.exit_code;
      EXPECT_EQ(outcome.exit_code == 0, !outcome.out.empty());
      if (outcome.exit_code == 3) {
        EXPECT_THAT(outcome.err, HasSubstr("moeplan: "));
      }
    }
  }
}

TEST(MemoryTest, APlanIsMadeIn200Megabytes) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's shadow has no place under a limit";
  const Outcome outcome = Process::Start({"plan", "--profile", kContract + "profile.example.json", "--workload",
                                          kContract + "workload.example.json", "--json"},
                                         {}, {.address_space_bytes = size_t{200'000} << 10})
                              .Finish(std::chrono::seconds(30));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

}  // namespace
}  // namespace moeplan::testing
