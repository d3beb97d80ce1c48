// The threads behind host streams, with and without threads of their own for each priority.
#include "executor/host/stream_crew.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <latch>
#include <memory>
#include <random>
#include <vector>

namespace moeplan {
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

  void Queue(int stream, Step step) {
    const QueuedStep queued{&streams_[stream], step};
    crew_.Queue({&queued, 1});
  }
  void Work(int stream, std::function<void()> work) {
    Queue(stream, Step::Run(new HostStream::Work([work = std::move(work)] {
                              work();
                              return OkStatus();
                            }),
                            /*owned=*/true));
  }

  StreamCrew crew_{[](const HostStream::Work& work) { (void)work(); }, /*priorities_apart=*/GetParam()};
  std::array<CrewStream, kStreams> streams_;
};

TEST_P(StreamCrewTest, WhereApartWorkOfHighPriorityIsPreferred) {
  std::array<int, kStreams> nice{};
  const int own = getpriority(PRIO_PROCESS, 0);
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < kStreams; ++i) Work(i, [&nice, i] { nice[i] = getpriority(PRIO_PROCESS, 0); });
    crew_.AwaitIdle();
    for (int i = 0; i < kStreams; ++i) {
      const bool nicer = GetParam() && kPriorities[i] == StreamPriority::kNormal;
      EXPECT_EQ(nice[i], nicer ? std::min(own + 10, 19) : own) << "stream " << i;
    }
  }
}

TEST_P(StreamCrewTest, WorkThatBlocksHoldsUpNoStreamOfEitherPriority) {
  // Each stream is let go by the one before it, whose work does not end before that of all.
  std::array<CrewEvent, kStreams> marks;
  for (int round = 0; round < 200; ++round) {
    std::latch all(kStreams);
    for (int i = 0; i < kStreams; ++i) {
      if (i > 0) Queue(i, Step::Wait(marks[i - 1]));
      Queue(i, Step::Record(marks[i]));
      Work(i, [&all] { all.arrive_and_wait(); });
    }
    crew_.AwaitIdle();
  }
}

TEST_P(StreamCrewTest, RandomWaitsAcrossPrioritiesAreAllKept) {
  const char* given = std::getenv("MOEPLAN_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::cout << "MOEPLAN_TEST_SEED=" << seed << std::endl;
  std::mt19937_64 random(seed);
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
        Queue(stream, Step::Wait(marks[before.back()]));
      }
      expected[i] = static_cast<int>(before.size());
      Work(stream, [&done, &seen, i, before] {
        for (const int other : before) seen[i] += done[other];
        done[i] = 1;
      });
      Queue(stream, Step::Record(marks[i]));
    }
    crew_.AwaitIdle();
    ASSERT_EQ(seen, expected) << "round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(Apart, StreamCrewTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "PrioritiesApart" : "TogetherAsOne"; });

}  // namespace
}  // namespace moeplan
