// The threads behind host streams, with and without threads of their own for each priority.
#include "executor/host/stream_crew.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <latch>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/test_seed.h"

namespace moeplan::executor {
namespace {

class StreamCrewTest : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr StreamPriority kPriorities[] = {StreamPriority::kNormal, StreamPriority::kHigh,
                                                   StreamPriority::kNormal, StreamPriority::kHigh,
                                                   StreamPriority::kHigh};
  static constexpr int kStreams = std::size(kPriorities);

  StreamCrewTest() {
    for (int i = 0; i < kStreams; ++i) crew_.Join(streams_[i], kPriorities[i]);
  }
  ~StreamCrewTest() override {
    for (CrewStream& stream : streams_) crew_.Leave(stream);
  }

  void Queue(int stream, CrewStep step) {
    const QueuedStep queued{&streams_[stream], step};
    crew_.Queue({&queued, 1});
  }
  void Work(int stream, std::function<void()> work) {
    Queue(stream, CrewStep::Run(new HostStream::Work([work = std::move(work)] {
                                  work();
                                  return OkStatus();
                                }),
                                /*owned=*/true));
  }

  StreamCrew crew_{[](const HostStream::Work& work) { (void)work(); }, /*priorities_apart=*/GetParam()};
  std::array<CrewStream, kStreams> streams_;
};

struct Scheduled {
  int policy = SCHED_OTHER, nice = 0;
};
Scheduled ThisThread() { return {sched_getscheduler(0) & ~SCHED_RESET_ON_FORK, getpriority(PRIO_PROCESS, 0)}; }

bool MayRunInRealTime() {
  bool may = false;
  std::thread([&may] {
    const sched_param lowest{.sched_priority = 1};
    may = sched_setscheduler(0, SCHED_RR, &lowest) == 0;
  }).join();
  return may;
}

TEST_P(StreamCrewTest, WhereApartWorkOfHighPriorityIsPreferred) {
  const bool real_time = MayRunInRealTime();
  const Scheduled own = ThisThread();
  for (int round = 0; round < 100; ++round) {
    std::array<Scheduled, kStreams> seen{};
    for (int i = 0; i < kStreams; ++i) Work(i, [&seen, i] { seen[i] = ThisThread(); });
    crew_.AwaitIdle();
    for (int i = 0; i < kStreams; ++i) {
      const bool high = kPriorities[i] == StreamPriority::kHigh;
      EXPECT_EQ(seen[i].policy, GetParam() && high && real_time ? SCHED_RR : own.policy) << "stream " << i;
      const bool nicer = GetParam() && !high;
      EXPECT_EQ(seen[i].nice, nicer ? std::min(own.nice + 10, 19) : own.nice) << "stream " << i;
    }
  }
}

TEST_P(StreamCrewTest, WorkThatBlocksHoldsUpNoStreamOfEitherPriority) {
  // Each stream is let go by the one before it, whose work does not end before that of all.
  std::array<CrewEvent, kStreams> marks;
  for (int round = 0; round < 200; ++round) {
    std::latch all(kStreams);
    for (int i = 0; i < kStreams; ++i) {
      if (i > 0) Queue(i, CrewStep::Wait(marks[i - 1]));
      Queue(i, CrewStep::Record(marks[i]));
      Work(i, [&all] { all.arrive_and_wait(); });
    }
    crew_.AwaitIdle();
  }
}

TEST_P(StreamCrewTest, RandomWaitsAcrossPrioritiesAreAllKept) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 300; ++round) {
    // Work i notes how many of those it waits for were done; marks order who writes and who reads.
    constexpr int kWorks = 60;
    std::vector<CrewEvent> marks(kWorks);
    std::array<int, kWorks> done{}, seen{}, expected{};
    for (int i = 0; i < kWorks; ++i) {
      const int stream = static_cast<int>(random() % kStreams);
      std::vector<int> before;
      for (int wait = static_cast<int>(random() % 3); wait > 0 && i > 0; --wait) {
        before.push_back(static_cast<int>(random() % i));
        Queue(stream, CrewStep::Wait(marks[before.back()]));
      }
      expected[i] = static_cast<int>(before.size());
      Work(stream, [&done, &seen, i, before] {
        for (const int other : before) seen[i] += done[other];
        done[i] = 1;
      });
      Queue(stream, CrewStep::Record(marks[i]));
    }
    crew_.AwaitIdle();
    ASSERT_EQ(seen, expected) << "round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(Apart, StreamCrewTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "PrioritiesApart" : "TogetherAsOne"; });

}  // namespace
}  // namespace moeplan::executor
