#include "executor/virtual/virtual_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/host/host_stream.h"

namespace moeplan::executor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Ranks that queue labelled work on streams "a" and "b", and when each task started and ended.
class VirtualJobTest : public ::testing::Test {
 protected:
  struct Span {
    double start_s, end_s;
    friend bool operator==(const Span&, const Span&) = default;
    friend void PrintTo(const Span& span, std::ostream* out) { *out << span.start_s << "–" << span.end_s; }
  };

  // `time_s`: by rank and task ("0 gate"), else by task ("gate"); others take no time.
  void Make(int ranks, std::map<std::string, double> time_s) {
    clock = VirtualClock::Make(ranks, [time_s = std::move(time_s)](int rank, std::string_view task) {
      for (const std::string& key : {std::to_string(rank) + " " + std::string(task), std::string(task)}) {
        if (const auto found = time_s.find(key); found != time_s.end()) return found->second;
      }
      return 0.0;
    });
    for (int rank = 0; rank < ranks; ++rank) {
      a.push_back(clock->device(rank).MakeStream("a", StreamPriority::kNormal));
      b.push_back(clock->device(rank).MakeStream("b", StreamPriority::kNormal));
    }
  }

  // What `queue` queues on the stream becomes the task.
  template <typename Queue>
  void Task(int rank, Stream& stream, const std::string& name, Queue queue) {
    Device& device = clock->device(rank);
    auto& [start, end] = events[{rank, name}];
    start = device.MakeEvent(), end = device.MakeEvent();
    device.Label(stream, name);
    device.Record(*start, stream);
    queue();
    device.Record(*end, stream);
  }

  void Work(int rank, Stream& stream, const std::string& name, HostStream::Work work = OkStatus) {
    Task(rank, stream, name, [&] { HostStream::Of(stream).Enqueue(std::move(work)); });
  }
  void Barrier(int rank, Stream& stream, const std::string& name, Communicator& group) {
    Task(rank, stream, name, [&] { group.Barrier(stream); });
  }
  void Barrier(int rank, Stream& stream, const std::string& name) { Barrier(rank, stream, name, clock->world(rank)); }

  // Holds `stream` until the task of the same rank has ended.
  void After(int rank, Stream& stream, const std::string& task) {
    clock->device(rank).Wait(stream, *events[{rank, task}].second);
  }

  Span When(int rank, const std::string& task) {
    const auto& [start, end] = events[{rank, task}];
    return {clock->device(rank).TimeS(*start), clock->device(rank).TimeS(*end)};
  }

  std::unique_ptr<VirtualClock> clock;
  std::vector<std::unique_ptr<Stream>> a, b;  // By rank.
  std::map<std::pair<int, std::string>, std::pair<std::unique_ptr<Event>, std::unique_ptr<Event>>> events;
};

TEST_F(VirtualJobTest, StreamsRunSideBySideAndWaitForEvents) {
  // a: gate 0–2, expert (after the copy) 5–6. b: copy 0–5.
  Make(1, {{"gate", 2}, {"copy", 5}, {"expert", 1}});
  Work(0, *a[0], "gate");
  Work(0, *b[0], "copy");
  After(0, *a[0], "copy");
  Work(0, *a[0], "expert");
  EXPECT_EQ(clock->Run(), OkStatus());
  EXPECT_EQ(When(0, "gate"), (Span{0, 2}));
  EXPECT_EQ(When(0, "copy"), (Span{0, 5}));
  EXPECT_EQ(When(0, "expert"), (Span{5, 6}));
  EXPECT_EQ(clock->now_s(), 6);
}

TEST_F(VirtualJobTest, OnlyTheFirstWorkUnderALabelTakesItsTime) {
  Make(1, {{"gate", 2}});
  HostStream::Of(*a[0]).Enqueue(OkStatus);  // No label yet: no time.
  Task(0, *a[0], "gate", [&] {
    for (int i = 0; i < 3; ++i) HostStream::Of(*a[0]).Enqueue(OkStatus);
  });
  EXPECT_EQ(clock->Run(), OkStatus());
  EXPECT_EQ(When(0, "gate"), (Span{0, 2}));
}

TEST_F(VirtualJobTest, AnEventWaitsForItsLastRecordBeforeTheWait) {
  // The event is recorded again after the Wait was queued; the waiter goes on with the first, at 2.
  Make(1, {{"first", 2}, {"second", 3}, {"waiter", 1}});
  const auto event = clock->device(0).MakeEvent();
  Work(0, *a[0], "first");
  clock->device(0).Record(*event, *a[0]);
  clock->device(0).Wait(*b[0], *event);
  Work(0, *b[0], "waiter");
  Work(0, *a[0], "second");
  clock->device(0).Record(*event, *a[0]);
  EXPECT_EQ(clock->Run(), OkStatus());
  EXPECT_EQ(When(0, "waiter"), (Span{2, 3}));
  EXPECT_EQ(clock->device(0).TimeS(*event), 5);
}

TEST_F(VirtualJobTest, WorkTakesEffectWhenItEnds) {
  // `write` ends at 3; `early` looks at 2 and `late` at 4.
  Make(1, {{"write", 3}, {"early", 2}, {"late", 2}});
  int value = 0, early = -1, late = -1;
  Work(0, *a[0], "write", [&] { return value = 1, OkStatus(); });
  Work(0, *b[0], "early", [&] { return early = value, OkStatus(); });
  Work(0, *b[0], "late", [&] { return late = value, OkStatus(); });
  EXPECT_EQ(clock->Run(), OkStatus());
  EXPECT_EQ(early, 0);
  EXPECT_EQ(late, 1);
}

TEST_F(VirtualJobTest, AStragglerDelaysExactlyThoseWhoWaitForIt) {
  // Ranks in pairs {0, 1} and {2, 3}. The experts take 1 s, on rank 1 5 s; a pair's exchange 2 s, for rank 0's part 3
  // s. Pair 0: experts end at 1 and 5, exchange 5–8. Pair 1: exchange 1–3. Rank 0's copy on the other stream: 0–1. Then
  // all: 8–8.5.
  Make(4, {{"expert", 1}, {"1 expert", 5}, {"exchange", 2}, {"0 exchange", 3}, {"copy", 1}, {"all", 0.5}});
  std::vector<std::unique_ptr<Communicator>> pairs;
  for (int rank = 0; rank < 4; ++rank) pairs.push_back(*clock->world(rank).Split(rank / 2));
  for (int rank = 0; rank < 4; ++rank) {
    Work(rank, *a[rank], "expert");
    Barrier(rank, *a[rank], "exchange", *pairs[rank]);
    Work(rank, *b[rank], "copy");
    Barrier(rank, *a[rank], "all");
  }
  EXPECT_EQ(clock->Run(), OkStatus());
  EXPECT_EQ(When(0, "expert"), (Span{0, 1}));
  EXPECT_EQ(When(1, "expert"), (Span{0, 5}));
  // A rank's task begins when its own stream gets there, even if it then waits for others.
  EXPECT_EQ(When(0, "exchange"), (Span{1, 8}));
  EXPECT_EQ(When(1, "exchange"), (Span{5, 8}));
  EXPECT_EQ(When(2, "exchange"), (Span{1, 3}));
  EXPECT_EQ(When(3, "exchange"), (Span{1, 3}));
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(When(rank, "copy"), (Span{0, 1}));
  EXPECT_EQ(When(3, "all"), (Span{3, 8.5}));
  EXPECT_EQ(When(0, "all"), (Span{8, 8.5}));
}

TEST_F(VirtualJobTest, ACollectiveMovesItsDataWhenItEnds) {
  // The gather runs 0–2; work beside it sees nothing at 1.
  Make(2, {{"gather", 2}, {"look", 1}});
  const std::vector<std::byte> sent = {std::byte{7}};
  std::vector<std::byte> received(2), seen(1, std::byte{9});
  std::vector<std::byte> ignored(2);
  for (int rank = 0; rank < 2; ++rank) {
    Task(rank, *a[rank], "gather",
         [&] { clock->world(rank).AllGather(sent, rank == 0 ? received : ignored, *a[rank]); });
  }
  Work(0, *b[0], "look", [&] { return seen[0] = received[0], OkStatus(); });
  EXPECT_EQ(clock->Run(), OkStatus());
  EXPECT_EQ(seen[0], std::byte{0});
  EXPECT_EQ(received[0], std::byte{7});
}

TEST_F(VirtualJobTest, SynchronizePlaysUntilItsOwnDeviceIsIdle) {
  Make(2, {{"0 work", 1}, {"1 work", 4}});
  for (int rank = 0; rank < 2; ++rank) Work(rank, *a[rank], "work");
  EXPECT_EQ(clock->device(0).Synchronize(), OkStatus());
  EXPECT_EQ(clock->now_s(), 1);
  Work(0, *a[0], "work");  // 1–2, while rank 1 goes on.
  EXPECT_EQ(clock->device(1).Synchronize(), OkStatus());
  EXPECT_EQ(When(0, "work"), (Span{1, 2}));
  EXPECT_EQ(When(1, "work"), (Span{0, 4}));
}

TEST_F(VirtualJobTest, WorkMayBeQueuedOnACommunicatorBeforeAllHaveSplit) {
  // Rank 1 splits at 3, when rank 0 already waits.
  Make(2, {{"exchange", 1}, {"work", 3}});
  const auto first = *clock->world(0).Split(0);
  const auto nested = *first->Split(5);
  Barrier(0, *a[0], "exchange", *nested);
  Work(1, *a[1], "work");
  EXPECT_EQ(clock->device(1).Synchronize(), OkStatus());
  const auto second = *clock->world(1).Split(0);
  const auto also_nested = *second->Split(5);
  EXPECT_EQ(also_nested->rank(), 1);
  EXPECT_EQ(nested->size(), 2);
  Barrier(1, *a[1], "exchange", *also_nested);
  EXPECT_EQ(clock->Run(), OkStatus());
  EXPECT_EQ(When(0, "exchange"), (Span{0, 4}));
}

TEST_F(VirtualJobTest, SplittingDoesNotDisturbARankThatWaitsInAnotherGroup) {
  // Rank 0 waits in the world while both split; rank 1 follows at 1.
  Make(2, {{"work", 1}, {"exchange", 2}});
  Barrier(0, *a[0], "exchange");
  Work(1, *a[1], "work");
  EXPECT_EQ(clock->device(1).Synchronize(), OkStatus());
  const auto zero = *clock->world(0).Split(0), one = *clock->world(1).Split(0);
  Barrier(1, *a[1], "exchange");
  EXPECT_EQ(clock->Run(), OkStatus());
  EXPECT_EQ(When(0, "exchange"), (Span{0, 3}));
}

// ---- Deadlocks.

TEST_F(VirtualJobTest, ADeadlockNamesEachWaitingRankStreamTaskAndWhatItWaitsFor) {
  // Rank 1 never comes to the second exchange; rank 0's expert waits for it on the other stream.
  Make(3, {{"first", 2}});
  for (int rank = 0; rank < 3; ++rank) Barrier(rank, *a[rank], "first");
  for (const int rank : {0, 2}) Barrier(rank, *a[rank], "second");
  After(0, *b[0], "second");
  Work(0, *b[0], "expert");
  const Status expected = DeadlineExceeded(
      "deadlock at 2 s: rank 0, stream a, task second waits for barrier with rank 1; "
      "rank 0, stream b, task expert waits for the event of task second on stream a; "
      "rank 2, stream a, task second waits for barrier with rank 1");
  EXPECT_EQ(clock->device(0).Synchronize(), expected);
  EXPECT_EQ(clock->device(2).Synchronize(), expected);
  EXPECT_EQ(clock->device(1).Synchronize(), OkStatus());
  EXPECT_EQ(clock->Run(), expected.Within("rank 0"));
}

TEST_F(VirtualJobTest, OppositeOrdersOfTwoGroupsAreADeadlock) {
  Make(2, {});
  const auto zero = *clock->world(0).Split(0), one = *clock->world(1).Split(0);
  Barrier(0, *a[0], "world", clock->world(0));
  Barrier(0, *a[0], "split", *zero);
  Barrier(1, *a[1], "split", *one);
  Barrier(1, *a[1], "world", clock->world(1));
  EXPECT_THAT(clock->Run().message(), AllOf(HasSubstr("rank 0, stream a, task world waits for barrier with rank 1"),
                                            HasSubstr("rank 1, stream a, task split waits for barrier with rank 0")));
}

TEST_F(VirtualJobTest, AGroupThatNotEveryRankHasSplitForIsADeadlock) {
  Make(2, {});
  const auto half = *clock->world(0).Split(0);
  Barrier(0, *a[0], "exchange", *half);
  EXPECT_THAT(clock->Run().message(), HasSubstr("waits for barrier with a group that not every rank has split for"));
}

TEST_F(VirtualJobTest, ADeadlockOfManyRanksTellsTheFirst) {
  Make(20, {});
  for (int rank = 0; rank < 19; ++rank) Barrier(rank, *a[rank], "exchange");
  EXPECT_THAT(clock->Run().message(), AllOf(HasSubstr("rank 7, stream a"), Not(HasSubstr("rank 8, stream a")),
                                            HasSubstr("and 11 more streams")));
}

TEST_F(VirtualJobTest, AfterADeadlockLaterWorkIsSkippedAndTheGroupStaysBroken) {
  Make(2, {{"work", 3}});
  Barrier(0, *a[0], "exchange");
  EXPECT_EQ(clock->device(0).Synchronize().code(), StatusCode::kDeadlineExceeded);
  bool ran = false;
  Work(0, *a[0], "work", [&] { return ran = true, OkStatus(); });
  Barrier(1, *a[1], "exchange");
  EXPECT_EQ(clock->device(0).Synchronize().code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(ran);
  const Status lost = clock->device(1).Synchronize();
  EXPECT_EQ(lost.code(), StatusCode::kPeerLost);
  EXPECT_THAT(lost.message(), HasSubstr("rank 0 is lost (deadlock at 0 s"));
}

// ---- Failures.

TEST_F(VirtualJobTest, AFailurePassesThroughGroupsToEverybodyWhoWaits) {
  // Groups {0, 1} and {1, 2}. Rank 0 fails at 2; rank 1 waits for it, and rank 2 for rank 1. Rank 3 waits for nobody.
  Make(4, {{"gate", 2}, {"beside", 5}});
  std::vector<std::unique_ptr<Communicator>> left, right;
  for (int rank = 0; rank < 4; ++rank) left.push_back(*clock->world(rank).Split(rank < 2 ? 0 : rank));
  for (int rank = 0; rank < 4; ++rank) right.push_back(*clock->world(rank).Split((rank + 1) / 2));
  std::vector<int> ran;
  for (const int rank : {0, 3}) Work(rank, *b[rank], "beside", [&, rank] { return ran.push_back(rank), OkStatus(); });
  Work(0, *a[0], "gate", [] { return DataLoss("bits fell out"); });
  Barrier(0, *a[0], "left", *left[0]);
  Barrier(1, *a[1], "left", *left[1]);
  Barrier(1, *a[1], "right", *right[1]);
  Barrier(2, *a[2], "right", *right[2]);
  EXPECT_EQ(clock->Run(), DataLoss("rank 0: bits fell out"));
  EXPECT_EQ(clock->device(0).Synchronize(), DataLoss("bits fell out"));
  EXPECT_EQ(clock->device(1).Synchronize(), PeerLost("rank 0 is lost (bits fell out): task left, 0 bytes"));
  EXPECT_EQ(clock->device(2).Synchronize(),
            PeerLost("rank 1 is lost (rank 0 is lost (bits fell out): task left, 0 bytes): task right, 0 bytes"));
  EXPECT_EQ(clock->device(3).Synchronize(), OkStatus());
  EXPECT_EQ(When(2, "right"), (Span{0, 2}));
  EXPECT_EQ(ran, std::vector{3});
}

TEST_F(VirtualJobTest, ALossBreaksTheCollectiveUnderWay) {
  // The exchange would run 0–4; rank 0 fails on its other stream at 1. Rank 2 works on past 4.
  Make(3, {{"exchange", 4}, {"gate", 1}, {"later", 9}});
  std::vector<std::unique_ptr<Communicator>> groups;
  for (int rank = 0; rank < 3; ++rank) groups.push_back(*clock->world(rank).Split(rank / 2));
  for (int rank = 0; rank < 2; ++rank) Barrier(rank, *a[rank], "exchange", *groups[rank]);
  Work(0, *b[0], "gate", [] { return DataLoss("bits fell out"); });
  Work(2, *a[2], "later");
  EXPECT_FALSE(clock->Run().ok());
  EXPECT_EQ(clock->device(2).Synchronize(), OkStatus());
  EXPECT_EQ(clock->device(1).Synchronize().code(), StatusCode::kPeerLost);
  EXPECT_EQ(When(1, "exchange"), (Span{0, 1}));
}

TEST_F(VirtualJobTest, ARankThatFailedIsLostEvenToGroupsItHasQueuedNothingOn) {
  // Rank 1 waits from 0, rank 2 comes at 3; rank 0 fails at 1.
  Make(3, {{"gate", 1}, {"work", 3}});
  Work(0, *a[0], "gate", [] { return DataLoss("bits fell out"); });
  Work(2, *a[2], "work");
  for (const int rank : {1, 2}) Barrier(rank, *a[rank], "exchange");
  EXPECT_FALSE(clock->Run().ok());
  for (const int rank : {1, 2}) {
    EXPECT_EQ(clock->device(rank).Synchronize(), PeerLost("rank 0 is lost (bits fell out): task exchange, 0 bytes"));
  }
  EXPECT_EQ(When(1, "exchange"), (Span{0, 1}));
  EXPECT_EQ(When(2, "exchange"), (Span{3, 3}));
}

TEST_F(VirtualJobTest, AFailureBesideAWaitThatIsLookedAtAgainLeavesNothingBehind) {
  // Rank 0's wait in the world is asked again, for the Split, at the instant at which its other stream fails. Under
  // AddressSanitizer this sees whether the group still knows the wait that was given up.
  Make(2, {{"work", 1}});
  Barrier(0, *b[0], "exchange");
  Work(1, *a[1], "work");
  EXPECT_EQ(clock->device(1).Synchronize(), OkStatus());
  Work(0, *a[0], "gate", [] { return DataLoss("bits fell out"); });
  const auto zero = *clock->world(0).Split(0), one = *clock->world(1).Split(0);
  Barrier(1, *a[1], "exchange");
  EXPECT_EQ(clock->Run(), DataLoss("rank 0: bits fell out"));
  EXPECT_EQ(clock->device(1).Synchronize().code(), StatusCode::kPeerLost);
}

TEST_F(VirtualJobTest, ARankThatFailedIsLostToGroupsSplitAfterwards) {
  Make(2, {});
  Work(0, *a[0], "gate", [] { return DataLoss("bits fell out"); });
  EXPECT_FALSE(clock->Run().ok());
  const auto zero = *clock->world(0).Split(0), one = *clock->world(1).Split(0);
  Barrier(1, *a[1], "exchange", *one);
  EXPECT_EQ(clock->device(1).Synchronize().code(), StatusCode::kPeerLost);
}

TEST_F(VirtualJobTest, AbortBeforeAllHaveSplitReachesTheGroupAndItsOwnSplits) {
  Make(2, {});
  const auto zero = *clock->world(0).Split(0);
  const auto zero_nested = *zero->Split(0);
  zero->Abort(Cancelled("enough"));
  const auto one = *clock->world(1).Split(0);
  const auto one_nested = *one->Split(0);
  Barrier(0, *a[0], "outer", *zero);
  Barrier(1, *a[1], "inner", *one_nested);
  EXPECT_FALSE(clock->Run().ok());
  EXPECT_EQ(clock->device(0).Synchronize(), Cancelled("task outer: enough"));
  EXPECT_EQ(clock->device(1).Synchronize(), Cancelled("task inner: enough"));
}

TEST_F(VirtualJobTest, AbortEndsOperationsUnderWayAndThoseOfSplitGroups) {
  Make(2, {{"exchange", 4}, {"gate", 1}});
  std::vector<std::unique_ptr<Communicator>> halves;
  for (int rank = 0; rank < 2; ++rank) halves.push_back(*clock->world(rank).Split(0));
  for (int rank = 0; rank < 2; ++rank) Barrier(rank, *a[rank], "exchange", *halves[rank]);
  Work(0, *b[0], "gate", [&] { return clock->world(0).Abort(Cancelled("enough")), OkStatus(); });
  EXPECT_FALSE(clock->Run().ok());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(clock->device(rank).Synchronize(), Cancelled("task exchange: enough"));
    EXPECT_EQ(When(rank, "exchange"), (Span{0, 1}));
  }
}

TEST_F(VirtualJobTest, MembersThatRunDifferentOperationsFail) {
  Make(2, {});
  std::vector<std::byte> one(1), two(2);
  Barrier(0, *a[0], "wait");
  Task(1, *a[1], "gather", [&] { clock->world(1).AllGather(one, two, *a[1]); });
  EXPECT_THAT(clock->Run().message(),
              HasSubstr("different operations: rank 0, task wait: barrier, but rank 1, task gather: all-gather"));
}

TEST_F(VirtualJobTest, MembersThatDisagreeOnSizesFail) {
  Make(2, {});
  std::vector<std::byte> send(2), recv(4);
  for (int rank = 0; rank < 2; ++rank) {
    const auto half = std::span(send).first(rank + 1);
    Task(rank, *a[rank], "gather",
         [&] { clock->world(rank).AllGather(half, std::span(recv).first(2 * half.size()), *a[rank]); });
  }
  EXPECT_THAT(clock->Run().message(), HasSubstr("rank 0 sends 1 bytes to rank 1, which expects 2"));
}

TEST_F(VirtualJobTest, ATransferWithOneSideFails) {
  for (const bool sends : {true, false}) {
    Make(2, {});
    std::vector<std::byte> bytes(4);
    const std::vector<Transfer> one = {{.peer = 1, .bytes = bytes}}, none;
    Task(0, *a[0], "exchange", [&] { clock->world(0).SendRecv(sends ? one : none, sends ? none : one, *a[0]); });
    Task(1, *a[1], "exchange", [&] { clock->world(1).SendRecv(none, none, *a[1]); });
    EXPECT_THAT(clock->Run().message(), HasSubstr(sends ? "a transfer from rank 0 to rank 1 has only one side"
                                                        : "a transfer from rank 1 to rank 0 has only one side"));
    events.clear(), a.clear(), b.clear();
  }
}

TEST_F(VirtualJobTest, ACommunicatorOnTwoStreamsAtOnceFails) {
  Make(2, {});
  Barrier(0, *a[0], "one");
  Barrier(0, *b[0], "other");
  EXPECT_THAT(clock->Run().message(), HasSubstr("task other: its communicator is in use by another stream"));
}

TEST_F(VirtualJobTest, WorkOfADestroyedStreamNeverRuns) {
  Make(2, {{"work", 1}});
  bool ran = false;
  Work(0, *a[0], "work", [&] { return ran = true, OkStatus(); });
  Barrier(1, *a[1], "exchange");
  a[0].reset();
  EXPECT_EQ(clock->Run().message(), "rank 0: stream a was destroyed before its work had passed");
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace moeplan::executor
