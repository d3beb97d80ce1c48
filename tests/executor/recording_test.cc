// Work taken down once and queued again (Device::Capture), on every backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>

#include "executor/host/host_stream.h"
#include "models/text.h"
#include "tests/executor/job_runner.h"

namespace moeplan::executor {
namespace {

using ::testing::ElementsAre;
using testing::Program;
using testing::Rank;
using testing::Round;

// What a rank queues on, and what its work leaves.
struct OnRank {
  explicit OnRank(const Rank& rank) : device(rank.device) {}

  void Write(int stream, const std::string& word) {
    HostStream::Of(*streams[stream]).Enqueue([this, word] {
      log.push_back(word);
      return OkStatus();
    });
  }

  Device& device;
  std::vector<std::unique_ptr<Stream>> streams = [this] {
    std::vector<std::unique_ptr<Stream>> made;
    for (int i = 0; i < 4; ++i) made.push_back(device.MakeStream(StrCat("stream ", i), StreamPriority::kNormal));
    return made;
  }();
  std::unique_ptr<Event> first = device.MakeEvent(), second = device.MakeEvent();
  std::vector<std::string> log;
  std::atomic<bool> go = false;
  std::unique_ptr<Recording> recording;
};

class RecordingTest : public ::testing::TestWithParam<testing::Backend> {
 protected:
  using Body = std::function<void(OnRank&)>;

  // One rank that takes down `taken`, then queues `queue` and checks, twice.
  void Run(const Body& taken, const Body& queue, const std::function<void(OnRank&, const Status&)>& check) {
    GetParam().make_runner(/*seed=*/1)->Run(1, [&](const Rank& rank) {
      const auto own = std::make_shared<OnRank>(rank);
      own->recording = rank.device.Capture([&taken, own = own.get()] { taken(*own); });
      const Round round = {[=] { queue(*own); }, [=](const Status& status) { check(*own, status); }};
      return std::vector<Round>{round, round};
    });
  }
};

TEST_P(RecordingTest, RunsOnlyWhenQueuedAndInOrderAcrossStreamsEachTime) {
  const auto taken = [](OnRank& own) {
    own.Write(0, "a");
    own.device.Record(*own.first, *own.streams[0]);
    own.device.Wait(*own.streams[1], *own.first);
    own.Write(1, "b");
    own.device.Record(*own.second, *own.streams[1]);
    own.device.Wait(*own.streams[0], *own.second);
    own.Write(0, "c");
  };
  const auto queue = [](OnRank& own) {
    EXPECT_TRUE(own.log.empty());
    for (int i = 0; i < 3; ++i) own.recording->Enqueue();
  };
  Run(taken, queue, [](OnRank& own, const Status& status) {
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_THAT(own.log, ElementsAre("a", "b", "c", "a", "b", "c", "a", "b", "c"));
    own.log.clear();
  });
}

TEST_P(RecordingTest, WaitsForWhatWasMarkedOutsideItBefore) {
  const auto taken = [](OnRank& own) {
    own.device.Wait(*own.streams[1], *own.first);
    own.Write(1, "after");
  };
  const auto queue = [](OnRank& own) {
    own.go = false;
    HostStream::Of(*own.streams[0]).Enqueue([&own] {
      own.go.wait(false);
      own.log.push_back("before");
      return OkStatus();
    });
    own.device.Record(*own.first, *own.streams[0]);
    own.recording->Enqueue();
    own.go = true;
    own.go.notify_all();
  };
  Run(taken, queue, [](OnRank& own, const Status&) {
    EXPECT_THAT(own.log, ElementsAre("before", "after"));
    own.log.clear();
  });
}

TEST_P(RecordingTest, AfterAnErrorSkipsWorkAndLetsEventsPass) {
  const auto taken = [](OnRank& own) {
    HostStream::Of(*own.streams[0]).Enqueue([] { return DataLoss("bits fell out"); });
    own.device.Record(*own.first, *own.streams[0]);
    own.device.Wait(*own.streams[1], *own.first);
    own.Write(1, "never");
  };
  Run(
      taken, [](OnRank& own) { own.recording->Enqueue(); },
      [](OnRank& own, const Status& status) {
        EXPECT_EQ(status, DataLoss("bits fell out"));
        EXPECT_TRUE(own.log.empty());
      });
}

INSTANTIATE_TEST_SUITE_P(Backends, RecordingTest, ::testing::ValuesIn(testing::Backends()),
                         [](const auto& test) { return test.param.name; });

TEST(HostDeviceTest, WorkThatBlocksHoldsUpNoOtherStream) {
  testing::RunRanks(1, [](const Rank& rank) {
    OnRank own(rank);
    std::barrier all(4);
    const auto taken = [&] {
      for (const auto& stream : own.streams) {
        HostStream::Of(*stream).Enqueue([&all] {
          all.arrive_and_wait();
          return OkStatus();
        });
      }
    };
    const std::unique_ptr<Recording> recording = rank.device.Capture(taken);
    for (int i = 0; i < 200; ++i) recording->Enqueue();
    EXPECT_TRUE(rank.device.Synchronize().ok());
  });
}

TEST(HostDeviceTest, StreamsRunBesideTheWorkBehindTheMarkThatTheyWaitedFor) {
  // Nobody's work ends before that of all four. One is blocked from the start, and one marks and blocks then: its
  // thread is not there for the two that the mark lets go.
  testing::RunRanks(1, [](const Rank& rank) {
    OnRank own(rank);
    std::barrier all(4);
    const auto block = [&](int stream) {
      HostStream::Of(*own.streams[stream]).Enqueue([&all] {
        all.arrive_and_wait();
        return OkStatus();
      });
    };
    const std::unique_ptr<Recording> recording = rank.device.Capture([&] {
      block(3);
      rank.device.Record(*own.first, *own.streams[0]);
      block(0);
      for (const int waiting : {1, 2}) {
        rank.device.Wait(*own.streams[waiting], *own.first);
        block(waiting);
      }
    });
    for (int i = 0; i < 200; ++i) recording->Enqueue();
    EXPECT_TRUE(rank.device.Synchronize().ok());
  });
}

TEST(HostDeviceTest, ManyStreamsThatWaitForOneAnotherAllGetThere) {
  // Every stream waits for a mark of the one before it, a thousand times, and marks it for the next.
  testing::RunRanks(1, [](const Rank& rank) {
    OnRank own(rank);
    std::vector<std::unique_ptr<Event>> marks;
    int steps = 0;  // Not atomic: the marks order those who write it.
    for (int i = 0; i < 1000; ++i) {
      Stream& stream = *own.streams[i % own.streams.size()];
      if (i > 0) rank.device.Wait(stream, *marks.back());
      HostStream::Of(stream).Enqueue([&steps] {
        ++steps;
        return OkStatus();
      });
      marks.push_back(rank.device.MakeEvent());
      rank.device.Record(*marks.back(), stream);
    }
    EXPECT_TRUE(rank.device.Synchronize().ok());
    EXPECT_EQ(steps, 1000);
    for (size_t i = 1; i < marks.size(); ++i) EXPECT_LE(rank.device.TimeS(*marks[i - 1]), rank.device.TimeS(*marks[i]));
  });
}

}  // namespace
}  // namespace moeplan::executor
