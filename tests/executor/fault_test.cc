// A rank fails, hangs or is slow at a random task of a random layer: the others leave in time with an error that says
// where, nothing stays behind, and the same layer runs again. Ranks are threads here; tests/agent/fault_test.cc does it
// to processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <random>

#include "executor/host/elements.h"
#include "executor/host/host_stream.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "tests/executor/job_runner.h"
#include "tests/executor/layer_on_rank.h"
#include "tests/executor/random_case.h"
#include "tests/test_seed.h"

namespace moeplan::executor {
namespace {

using std::chrono::milliseconds;
using testing::Case;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::LayerOnRank;
using testing::Rank;

// Lets threads wait for the others, but not for ever.
class Gate {
 public:
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Await() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30), [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// A device that does `fault` on the stream of task number `at`, before the task, and counts the bytes that live.
class FaultyDevice final : public Device {
 public:
  FaultyDevice(Device& device, int at, HostStream::Work fault)
      : device_(device), tasks_before_(at), fault_(std::move(fault)) {}

  StatusOr<DeviceMemory> Allocate(size_t bytes) override {
    ASSIGN_OR_RETURN(DeviceMemory memory, device_.Allocate(bytes));
    *live_bytes_ += bytes;
    const auto held = std::make_shared<DeviceMemory>(std::move(memory));
    return DeviceMemory(held->data(), bytes, [held, bytes, live = live_bytes_](std::byte*) { *live -= bytes; });
  }
  bool host_reads_memory() const override { return device_.host_reads_memory(); }
  std::unique_ptr<Stream> MakeStream(const std::string& name, StreamPriority priority) override {
    return device_.MakeStream(name, priority);
  }
  std::unique_ptr<Event> MakeEvent() override { return device_.MakeEvent(); }
  void Record(Event& event, Stream& stream) override { device_.Record(event, stream); }
  void Wait(Stream& stream, Event& event) override { device_.Wait(stream, event); }
  void Copy(std::byte* to, const std::byte* from, size_t bytes, Stream& stream) override {
    device_.Copy(to, from, bytes, stream);
  }
  void Label(Stream& stream, const std::string& task) override {
    device_.Label(stream, task);
    if (tasks_before_-- == 0) HostStream::Of(stream).Enqueue(fault_);
  }
  std::unique_ptr<Recording> Capture(std::function<void()> queue) override { return device_.Capture(std::move(queue)); }
  Status Synchronize() override { return device_.Synchronize(); }
  Status Await(Stream& stream) override { return device_.Await(stream); }
  double TimeS(const Event& event) const override { return device_.TimeS(event); }

  size_t live_bytes() const { return *live_bytes_; }

 private:
  Device& device_;
  int tasks_before_;
  HostStream::Work fault_;
  std::shared_ptr<size_t> live_bytes_ = std::make_shared<size_t>(0);
};

enum class Fault { kNone, kFails, kHangs, kIsSlow };

struct Draw {
  Case test;
  TaskGraph graph;
  Fault fault = Fault::kNone;
  int rank = 0, task = 0;  // Where it happens.
  bool gloo = false;
};

// What a rank saw.
struct Outcome {
  Status status;
  double time_s = 0;
  std::vector<float> output;
};

// Connections are made within the same deadline, which takes its time where the machine is busy.
double DeadlineS(const Draw& draw) { return draw.gloo ? 2.5 : 0.6; }
constexpr double kSlackS = 3;  // Two busy processors and a sanitizer.

Draw RandomDraw(std::mt19937_64& random) {
  Draw draw;
  do draw.test = testing::RandomCase(random);
  while (Ranks(draw.test.cluster) == 1);
  const std::vector<Knobs> knobs = testing::AllKnobs(draw.test);
  draw.graph = *BuildSchedule(knobs[random() % knobs.size()], draw.test.workload, draw.test.cluster);
  constexpr Fault kFaults[] = {Fault::kFails, Fault::kHangs, Fault::kIsSlow};
  draw.fault = kFaults[random() % 3];
  draw.rank = static_cast<int>(random() % Ranks(draw.test.cluster));
  draw.task = static_cast<int>(random() % draw.graph.tasks.size());
  draw.gloo = random() % 3 == 0;  // Connecting takes most of a draw's time.
  return draw;
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Runs the layer once on ranks and a mesh of its own.
std::vector<Outcome> RunOnce(const Draw& draw, double deadline_s) {
  const int ranks = Ranks(draw.test.cluster);
  std::vector<Outcome> outcomes(ranks);
  Gate others_left;
  std::atomic<int> others = ranks - 1;
  std::barrier prepared(ranks);
  const auto fault = [&]() -> Status {
    if (draw.fault == Fault::kFails) return DataLoss("bits fell out");
    if (draw.fault == Fault::kHangs) others_left.Await();
    if (draw.fault == Fault::kIsSlow) std::this_thread::sleep_for(milliseconds(20));
    return OkStatus();
  };
  const auto body = [&](const Rank& rank) {
    const bool faulty = draw.fault != Fault::kNone && rank.rank == draw.rank;
    FaultyDevice device(rank.device, faulty ? draw.task : -1, fault);
    Outcome& outcome = outcomes[rank.rank];
    {
      LayerOnRank layer(draw.test, {rank.rank, device, rank.world});
      const std::unique_ptr<GraphRunner> runner = layer.Prepare(draw.graph);
      EXPECT_GT(device.live_bytes(), 0U);
      const ElementType type = ElementTypeOf(layer.layer.bytes_per_element);
      Store(layer.input.data(), type, layer.input.size(), runner->input());
      prepared.arrive_and_wait();  // A fault before its peers have their groups is none of a task.
      const auto start = std::chrono::steady_clock::now();
      runner->Enqueue(draw.test.workload.phase);
      outcome.status = device.Synchronize();
      outcome.time_s = SecondsSince(start);
      if (!faulty && --others == 0) others_left.Open();
      outcome.output.resize(layer.input.size());
      Load(runner->output(), type, outcome.output.size(), outcome.output.data());
    }
    EXPECT_EQ(device.live_bytes(), 0U);
  };
  if (draw.gloo) {
    testing::RunRanks(ranks, testing::MakeGlooMeshes(ranks), body, deadline_s);
  } else {
    testing::RunRanks(ranks, body, deadline_s);
  }
  return outcomes;
}

void ExpectSameOutput(const std::vector<Outcome>& got, const std::vector<Outcome>& expected) {
  for (size_t rank = 0; rank < got.size(); ++rank) {
    EXPECT_TRUE(got[rank].status.ok()) << got[rank].status.message();
    EXPECT_EQ(got[rank].output, expected[rank].output) << "rank " << rank;
  }
}

// Whether any of the others noticed: a rank may fail after it has given all that they wait for.
bool ExpectOthersLeft(const Draw& draw, const std::vector<Outcome>& outcomes) {
  bool noticed = false;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const Outcome& outcome = outcomes[rank];
    if (static_cast<int>(rank) == draw.rank || outcome.status.ok()) continue;
    noticed = true;
    EXPECT_LE(outcome.time_s, DeadlineS(draw) + kSlackS) << "rank " << rank;
    if (draw.fault == Fault::kFails) {
      EXPECT_THAT(outcome.status.message(), HasSubstr(StrCat("on rank ", draw.rank, ": bits fell out")));
      EXPECT_THAT(outcome.status.message(), HasSubstr("task "));
    } else {
      EXPECT_THAT(outcome.status.message(), ContainsRegex("rank [0-9]+ did not answer in time: task .*, [0-9]+ bytes"));
    }
  }
  return noticed;
}

size_t EntriesOf(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

constexpr int kDraws = 66;  // Another 34 happen to processes.

TEST(RankFaultTest, OthersLeaveInTimeNothingStaysBehindAndTheLayerRunsAgain) {
  std::mt19937_64 random(TestSeed());
  size_t descriptors = 0, threads = 0, heap_bytes = 0;
  int noticed = 0;
  for (int i = 0; i < kDraws && !HasFailure(); ++i) {
    Draw draw = RandomDraw(random);
    SCOPED_TRACE(StrCat("draw ", i, ": ", Describe(draw.test), " fault ", static_cast<int>(draw.fault), " rank ",
                        draw.rank, " task ", draw.graph.tasks[draw.task].name, draw.gloo ? " gloo" : ""));
    const std::vector<Outcome> faulty = RunOnce(draw, draw.fault == Fault::kIsSlow ? 20 : DeadlineS(draw));
    Draw healthy = draw;
    healthy.fault = Fault::kNone;
    const std::vector<Outcome> again = RunOnce(healthy, 20);
    healthy.gloo = false;
    const std::vector<Outcome> expected = RunOnce(healthy, 20);
    ExpectSameOutput(again, expected);
    if (draw.fault == Fault::kIsSlow) {
      ExpectSameOutput(faulty, expected);
    } else {
      noticed += ExpectOthersLeft(draw, faulty);
    }
    if (draw.fault == Fault::kFails) {
      EXPECT_EQ(faulty[draw.rank].status, DataLoss("bits fell out"));
    }
    if (i == kDraws / 4) {
      descriptors = EntriesOf("/proc/self/fd"), threads = EntriesOf("/proc/self/task");
      heap_bytes = mallinfo2().uordblks;
    }
  }
  EXPECT_GE(noticed, kDraws / 5) << "of about " << kDraws * 2 / 3 << " that fail or hang";
  if (HasFailure()) return;
  EXPECT_LE(EntriesOf("/proc/self/fd"), descriptors);
  EXPECT_LE(EntriesOf("/proc/self/task"), threads);
  EXPECT_LE(mallinfo2().uordblks, heap_bytes + (size_t{1} << 20));  // A layer has some 100 KB on each rank.
}

}  // namespace
}  // namespace moeplan::executor
