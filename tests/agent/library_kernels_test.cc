// Kernels that are timed through a job's own libraries: what the agent makes of the program's answers, with programs
// that answer as they like, and, where PyTorch is installed, what the real program measures.
#include "agent/libraries/library_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "models/text.h"
#include "tests/python_with_torch.h"

namespace moeplan::agent {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

// The job's Python, for as long as this lives.
class PythonIs {
 public:
  explicit PythonIs(const std::string& program) {
    const char* before = std::getenv(kPythonVariable);
    if (before != nullptr) before_ = before;
    setenv(kPythonVariable, program.c_str(), 1);
  }
  PythonIs(PythonIs&&) = delete;
  ~PythonIs() { before_.empty() ? unsetenv(kPythonVariable) : setenv(kPythonVariable, before_.c_str(), 1); }

 private:
  std::string before_;
};

// Reads what it is sent first, as Python would, then runs `script`.
class LibraryKernelsTest : public ::testing::Test {
 protected:
  // A program that ends before it is sent anything is an error of the write, as in the command (cli/main.cc).
  void SetUp() override { std::signal(SIGPIPE, SIG_IGN); }
  // Tests run beside each other, each in a process of its own.
  static std::string PathOf(const std::string& name) { return StrCat(::testing::TempDir(), name, "_", getpid()); }

  std::string Program(const std::string& script) {
    const std::string path = PathOf("python_stand_in");
    std::ofstream(path) << "#!/bin/bash\nread -r bytes; head -c \"$bytes\" > /dev/null\n" << script << "\n";
    chmod(path.c_str(), 0755);
    return path;
  }
  static LibraryRequest Norms(int repeats) {
    return {.key = {.kernel = Kernel::kNorm}, .size = 1 << 20, .warm_ups = 1, .repeats = repeats};
  }
};

TEST_F(LibraryKernelsTest, TakesTimesAndTheLibraryThatTheyAreOf) {
  const PythonIs python(Program(R"(echo '{"ready": "torch"}'
while read -r request; do echo "{\"timesS\": [0.5, 0.25], \"library\": \"torch 9, ${#request}\"}"; done)"));
  const auto kernels = LibraryKernels::Start("cpu", 10);
  ASSERT_TRUE(kernels.ok()) << kernels.status().message();
  for (int i = 0; i < 2; ++i) {
    const auto times = (*kernels)->Time(Norms(2));
    ASSERT_TRUE(times.ok()) << times.status().message();
    EXPECT_THAT(times->times_s, ::testing::ElementsAre(0.5, 0.25));
    EXPECT_THAT(times->library, StartsWith("torch 9, "));
    EXPECT_THAT(times->left_out, IsEmpty());
  }
}

TEST_F(LibraryKernelsTest, GivesOnWhyAKernelIsLeftOut) {
  const PythonIs python(Program(R"(echo '{"ready": "torch"}'; read -r _; echo '{"leftOut": "no such kernel"}')"));
  const auto kernels = LibraryKernels::Start("cpu", 10);
  ASSERT_TRUE(kernels.ok()) << kernels.status().message();
  const auto times = (*kernels)->Time(Norms(1));
  ASSERT_TRUE(times.ok());
  EXPECT_EQ(times->left_out, "no such kernel");
  EXPECT_THAT(times->times_s, IsEmpty());
}

TEST_F(LibraryKernelsTest, APythonWithoutTheLibrarySaysSoAndHowToGiveAnother) {
  for (const auto& [script, expected] : std::vector<std::pair<std::string, std::string>>{
           {R"(echo '{"failed": "No module named torch"}')", "No module named torch"},
           {"echo hello", "found 'hello'"},
           {"exit 3", "exited with code 3"}}) {
    const PythonIs python(Program(script));
    const auto kernels = LibraryKernels::Start("cpu", 10);
    ASSERT_FALSE(kernels.ok()) << script;
    EXPECT_EQ(kernels.status().code(), StatusCode::kUnimplemented) << script;
    EXPECT_THAT(kernels.status().message(),
                AllOf(StartsWith("no PyTorch at "), HasSubstr(expected), HasSubstr("--python")))
        << script;
  }
  const PythonIs python("/nowhere/python3");
  const auto kernels = LibraryKernels::Start("cpu", 10);
  ASSERT_FALSE(kernels.ok());
  EXPECT_THAT(kernels.status().message(), HasSubstr("no PyTorch at /nowhere/python3: there is no such program"));
}

TEST_F(LibraryKernelsTest, AnswersThatAreNoneAreErrors) {
  for (const char* answer : {R"({"timesS": [1, 2, 3], "library": "torch"})", R"({"timesS": 1})", "[]", "nonsense"}) {
    const PythonIs python(Program(StrCat("echo '{\"ready\": \"torch\"}'; read -r _; echo '", answer, "'")));
    const auto kernels = LibraryKernels::Start("cpu", 10);
    ASSERT_TRUE(kernels.ok());
    const auto times = (*kernels)->Time(Norms(2));
    ASSERT_FALSE(times.ok()) << answer;
    EXPECT_EQ(times.status().code(), StatusCode::kUnavailable);
    EXPECT_THAT(times.status().message(), HasSubstr("expected 2 times"));
  }
}

TEST_F(LibraryKernelsTest, WhoeverDoesNotAnswerOrEndsIsNotWaitedForLong) {
  {
    const PythonIs python(Program("echo '{\"ready\": \"torch\"}'; exec sleep 100"));
    const auto kernels = LibraryKernels::Start("cpu", 0.05);
    // A slow machine may not even start it so fast.
    const Status late = kernels.ok() ? (*kernels)->Time(Norms(1)).status() : kernels.status();
    EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded) << late.message();
  }
  const PythonIs python(Program("echo '{\"ready\": \"torch\"}'; read -r _; exit 7"));
  const auto kernels = LibraryKernels::Start("cpu", 10);
  ASSERT_TRUE(kernels.ok());
  const auto times = (*kernels)->Time(Norms(1));
  EXPECT_EQ(times.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(times.status().message(), HasSubstr("exited with code 7"));
}

// A module system's wrapper, say, that hangs.
TEST_F(LibraryKernelsTest, WhatTheProgramStartedEndsWithIt) {
  const std::string note = PathOf("started_pid");
  {
    const PythonIs python(
        Program(StrCat("sleep 60 > /dev/null 2>&1 & echo $! > ", note, "; echo '{\"ready\": \"torch\"}'; wait")));
    const auto kernels = LibraryKernels::Start("cpu", 10);
    ASSERT_TRUE(kernels.ok()) << kernels.status().message();
  }
  pid_t started = 0;
  std::ifstream(note) >> started;
  ASSERT_GT(started, 0);
  // Whoever inherits it reaps it in its own time: it is gone, or a zombie.
  std::string state = "R";
  for (int i = 0; i < 1000 && state != "Z" && kill(started, 0) == 0; ++i) {
    std::ifstream status(StrCat("/proc/", started, "/stat"));
    std::string skipped;
    if (!(status >> skipped >> skipped >> state)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(state == "Z" || kill(started, 0) != 0) << state;
}

// ---- With the real program.

class TorchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string program = PythonWithTorch();
    if (program.empty()) GTEST_SKIP() << "no python3 with PyTorch (Debian: python3-torch)";
    python_ = std::make_unique<PythonIs>(program);
    auto kernels = LibraryKernels::Start("cpu", 60);
    ASSERT_TRUE(kernels.ok()) << kernels.status().message();
    kernels_ = *std::move(kernels);
  }

  std::unique_ptr<PythonIs> python_;
  std::unique_ptr<LibraryKernels> kernels_;
};

TEST_F(TorchTest, EveryKernelOfTheRestOfAStepIsTimed) {
  const KernelShape linear = {.in_features = 64, .out_features = 96, .experts = 1};
  const KernelShape grouped = {.in_features = 64, .out_features = 96, .experts = 3};
  const KernelShape attention = {.heads = 4, .kv_heads = 2, .query_key_dim = 24, .value_dim = 16, .sequence = 32};
  for (const Kernel kernel : AllFrom(Kernel::kLinear)) {
    if (!IsOfTheRestOfAStep(kernel)) continue;
    for (const int bytes : {2, 4}) {
      KernelKey key = {.kernel = kernel, .bytes_per_element = bytes};
      if (IsLinear(kernel)) key.shape = bytes == 2 ? linear : grouped;
      if (IsAttention(kernel)) key.shape = attention;
      ASSERT_TRUE(ValidateKernelKey(key, "key").ok());
      const auto times = kernels_->Time({.key = key, .size = 1 << 12, .warm_ups = 1, .repeats = 3});
      ASSERT_TRUE(times.ok()) << times.status().message();
      EXPECT_THAT(times->left_out, IsEmpty()) << Describe(key);
      EXPECT_THAT(times->times_s, AllOf(SizeIs(3), Each(Gt(0)))) << Describe(key);
      EXPECT_THAT(times->library, HasSubstr("torch ")) << Describe(key);
    }
  }
}

// A window hides more than the causal mask; both are computed whole where scores are stored.
TEST_F(TorchTest, AttentionWithAWindowIsTimed) {
  for (const Kernel kernel : {Kernel::kAttention, Kernel::kAttentionGradient}) {
    const KernelShape shape = {
        .heads = 4, .kv_heads = 2, .query_key_dim = 16, .value_dim = 16, .sequence = 64, .window = 8};
    const auto times = kernels_->Time({.key = {.kernel = kernel, .bytes_per_element = 2, .shape = shape},
                                       .size = 2 * AttentionFlops(shape),
                                       .repeats = 2});
    ASSERT_TRUE(times.ok()) << times.status().message();
    EXPECT_THAT(times->left_out, IsEmpty());
    EXPECT_THAT(times->times_s, SizeIs(2));
  }
}

// The folder that an agent runs in is not the job's.
TEST_F(TorchTest, ModulesAreNotTakenFromTheWorkingFolder) {
  const std::filesystem::path before = std::filesystem::current_path();
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / StrCat("modules_", getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "torch.py") << "raise RuntimeError('taken from here')\n";
  std::filesystem::current_path(folder);
  const auto kernels = LibraryKernels::Start("cpu", 60);
  std::filesystem::current_path(before);
  EXPECT_TRUE(kernels.ok()) << kernels.status().message();
}

TEST_F(TorchTest, WhatNoLibraryHasIsLeftOutAndTheNextIsTimed) {
  const auto none = kernels_->Time({.key = {.kernel = Kernel::kNorm, .bytes_per_element = 1}, .size = 1e6});
  ASSERT_TRUE(none.ok()) << none.status().message();
  EXPECT_THAT(none->left_out, HasSubstr("1 bytes"));
  // More rows than any memory holds.
  const auto huge = kernels_->Time({.key = {.kernel = Kernel::kResidual, .bytes_per_element = 2}, .size = 1e18});
  ASSERT_TRUE(huge.ok()) << huge.status().message();
  EXPECT_THAT(huge->left_out, ::testing::Not(IsEmpty()));
  const auto next = kernels_->Time({.key = {.kernel = Kernel::kNorm, .bytes_per_element = 2}, .size = 1e6});
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_THAT(next->times_s, SizeIs(1));
}

// Products of 4,096 times the flops, and moves and launches of 1,024 times as many, take several times as long, however
// busy the machine is: of several times the least.
TEST_F(TorchTest, LargerSizesTakeLonger) {
  const auto least_s = [&](const KernelKey& key, double size) {
    const auto times = kernels_->Time({.key = key, .size = size, .warm_ups = 1, .repeats = 9});
    EXPECT_TRUE(times.ok() && times->left_out.empty()) << Describe(key);
    return times.ok() && !times->times_s.empty() ? std::ranges::min(times->times_s) : 0;
  };
  const KernelKey linear = {.kernel = Kernel::kLinear,
                            .bytes_per_element = 4,
                            .shape = {.in_features = 256, .out_features = 256, .experts = 1}};
  EXPECT_GT(least_s(linear, 4096 * 1e6), 3 * least_s(linear, 1e6));
  const KernelKey norm = {.kernel = Kernel::kNorm, .bytes_per_element = 4};
  EXPECT_GT(least_s(norm, 1024 * 1e5), 3 * least_s(norm, 1e5));
  const KernelKey launches = {.kernel = Kernel::kHostLaunch};
  EXPECT_GT(least_s(launches, 1024 * 12), 3 * least_s(launches, 12));
}

}  // namespace
}  // namespace moeplan::agent
