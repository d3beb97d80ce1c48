// What of the cuda backend's machine needs no card: deadlines, priorities, clocks, captures, what moves, and messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <thread>

#include "executor/cuda/capture_scope.h"
#include "executor/cuda/clock_anchor.h"
#include "executor/cuda/deadline_watch.h"
#include "executor/cuda/machine_errors.h"
#include "executor/cuda/part_exchange.h"
#include "executor/cuda/share_bytes.h"
#include "executor/cuda/stream_priority.h"
#include "tests/executor/rank_threads.h"
#include "tests/test_seed.h"

namespace moeplan::executor::cuda {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const HostTime kStart = HostTime() + std::chrono::hours(1000);

TEST(DeadlineWatchTest, TimeBeginsWhenTheOperationIsFirstSeenUnderWay) {
  DeadlineWatch watch(/*deadline_s=*/10);
  EXPECT_FALSE(watch.IsOverdue(/*begun=*/false, /*ended=*/false, /*run=*/1, kStart));
  EXPECT_FALSE(watch.IsOverdue(true, false, 1, kStart + seconds(100)));  // What was before it took 100 s.
  EXPECT_FALSE(watch.IsOverdue(true, false, 1, kStart + seconds(109)));
  EXPECT_TRUE(watch.IsOverdue(true, false, 1, kStart + seconds(110)));
}

TEST(DeadlineWatchTest, WhatHasEndedIsNeverOverdueAndBeginsAnew) {
  DeadlineWatch watch(10);
  EXPECT_FALSE(watch.IsOverdue(true, false, 1, kStart));
  EXPECT_FALSE(watch.IsOverdue(true, true, 1, kStart + seconds(50)));
  EXPECT_FALSE(watch.IsOverdue(true, false, 1, kStart + seconds(51)));
  EXPECT_FALSE(watch.IsOverdue(true, false, 1, kStart + seconds(60)));
  EXPECT_TRUE(watch.IsOverdue(true, false, 1, kStart + seconds(61)));
}

TEST(DeadlineWatchTest, AReplayThatNobodySawEndOrBeginHasItsOwnTime) {
  DeadlineWatch watch(10);
  EXPECT_FALSE(watch.IsOverdue(true, false, 1, kStart));
  EXPECT_FALSE(watch.IsOverdue(true, false, 2, kStart + seconds(11)));
  EXPECT_FALSE(watch.IsOverdue(true, false, 2, kStart + seconds(20)));
  EXPECT_TRUE(watch.IsOverdue(true, false, 2, kStart + seconds(21)));
}

TEST(StreamPriorityTest, ExpertsGoBeforePipelineBeforeContextBeforeDataBeforeCompute) {
  // Cards of compute capability 7.0 and later have -5 to 0.
  const PriorityRange range = {.least = 0, .greatest = -5};
  EXPECT_EQ(PriorityOf(Traffic::kExpert, range), -5);
  EXPECT_EQ(PriorityOf(Traffic::kPipeline, range), -4);
  EXPECT_EQ(PriorityOf(Traffic::kContext, range), -3);
  EXPECT_EQ(PriorityOf(Traffic::kData, range), -2);
  EXPECT_EQ(PriorityOf(StreamPriority::kHigh, range), -5);
  EXPECT_EQ(PriorityOf(StreamPriority::kData, range), -2);
  EXPECT_EQ(PriorityOf(StreamPriority::kNormal, range), 0);
}

TEST(StreamPriorityTest, FewPrioritiesAreSharedFromBelow) {
  const PriorityRange three = {.least = 0, .greatest = -2};
  EXPECT_EQ(PriorityOf(Traffic::kExpert, three), -2);
  EXPECT_EQ(PriorityOf(Traffic::kPipeline, three), -1);
  EXPECT_EQ(PriorityOf(Traffic::kData, three), -1);
  for (const Traffic traffic : {Traffic::kExpert, Traffic::kPipeline, Traffic::kContext, Traffic::kData}) {
    EXPECT_EQ(PriorityOf(traffic, {.least = 0, .greatest = 0}), 0);
  }
}

TEST(ClockAnchorTest, TimesKeepHalfAMicrosecondAfterHours) {
  // Ten hours into the machine's life, two events half a microsecond apart, 0.4 s behind the anchor.
  const AnchorTimes anchor = {.asked_s = 36000.0, .seen_s = 36000.00001};
  const float first_ms = 400.0F, second_ms = 400.0005F;
  EXPECT_NEAR(TimeBehindS(anchor, second_ms) - TimeBehindS(anchor, first_ms), 0.5e-6, 0.05e-6);
  EXPECT_NEAR(TimeBehindS(anchor, first_ms), 36000.400005, 1e-9);
  EXPECT_NEAR(anchor.uncertainty_s(), 5e-6, 1e-11);
}

TEST(CaptureScopeTest, KnowsEachStreamAndEventOnceAndTheFirstReason) {
  int streams[2], events[2];
  CaptureScope<int, int> scope;
  EXPECT_TRUE(scope.Join(&streams[0]));
  EXPECT_TRUE(scope.Join(&streams[1]));
  EXPECT_FALSE(scope.Join(&streams[0]));
  EXPECT_THAT(scope.streams(), ElementsAre(&streams[0], &streams[1]));
  EXPECT_FALSE(scope.RecordedInside(&events[0]));
  scope.Record(&events[0]);
  scope.Record(&events[0]);
  EXPECT_TRUE(scope.RecordedInside(&events[0]));
  EXPECT_FALSE(scope.RecordedInside(&events[1]));
  EXPECT_THAT(scope.events(), ElementsAre(&events[0]));
  EXPECT_TRUE(scope.refusal().empty());
  scope.Refuse("sizes");
  EXPECT_FALSE(scope.refused_on_all_ranks());
  scope.RefuseOnAllRanks("ranks");
  EXPECT_TRUE(scope.refused_on_all_ranks());
  EXPECT_EQ(scope.refusal(), "sizes");
}

// ---- What an exchange moves.

bool Same(const Part& a, const Part& b) {
  return a.peer == b.peer && a.bytes.data() == b.bytes.data() && a.bytes.size() == b.bytes.size();
}

// Every non-empty part to and from every other rank, as executor/host/parts lists them, in their order.
void ExpectSameButForOwn(const std::vector<Part>& moved, const std::vector<Part>& listed, int rank) {
  std::vector<Part> expected, found;
  for (const Part& part : listed) {
    if (part.peer != rank && !part.bytes.empty()) expected.push_back(part);
  }
  for (const Part& part : moved) {
    if (part.peer != rank) found.push_back(part);
  }
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(Same(found[i], expected[i])) << i;
}

TEST(MovesTest, AreTheRowsThatHostPartsListWithAndWithoutCounts) {
  std::mt19937_64 random(TestSeed());
  for (int draw = 0; draw < 300; ++draw) {
    const int size = 1 + static_cast<int>(random() % 6), rank = static_cast<int>(random() % size);
    const int cells_per_block = 1 + static_cast<int>(random() % 3);
    std::vector<int32_t> counts(size * cells_per_block);
    for (int32_t& count : counts) count = static_cast<int32_t>(random() % 3);
    CellLayout cells = {.blocks = size, .cells_per_block = cells_per_block, .rows_per_cell = 2};
    if (random() % 2 == 0) cells.counts = counts.data();
    std::vector<std::byte> from(size * cells_per_block * 2 * 8), to(from.size());
    const std::vector<Part> sends = PartsOf({.data = from.data(), .row_bytes = 8, .cells = cells}, size);
    const std::vector<Part> receives = PartsOf({.data = to.data(), .row_bytes = 8, .cells = cells}, size);
    const Moves moves = MovesOf(sends, receives, rank);
    ExpectSameButForOwn(moves.sends, sends, rank);
    ExpectSameButForOwn(moves.receives, receives, rank);
    const bool keeps = !sends[rank].bytes.empty();
    EXPECT_EQ(std::ranges::count(moves.sends, rank, &Part::peer), keeps ? 1 : 0);
    EXPECT_EQ(std::ranges::count(moves.receives, rank, &Part::peer), keeps ? 1 : 0);
  }
}

TEST(MovesTest, WhatComesFromWhereItGoesStays) {
  std::vector<std::byte> memory(12);
  const std::vector<Part> parts = EqualParts(memory, 3);
  const Moves moves = MovesOf(SameToAll(parts[1].bytes, 3), parts, /*rank=*/1);  // A gather in place.
  ASSERT_EQ(moves.sends.size(), 2u);
  EXPECT_TRUE(Same(moves.sends[0], {0, parts[1].bytes}));
  EXPECT_TRUE(Same(moves.sends[1], {2, parts[1].bytes}));
  ASSERT_EQ(moves.receives.size(), 2u);
  EXPECT_TRUE(Same(moves.receives[0], parts[0]));
  EXPECT_TRUE(Same(moves.receives[1], parts[2]));
}

TEST(MovesTest, SeveralOwnPartsMatchInOrderWhicheverAreMoved) {
  std::vector<std::byte> memory(16);
  const auto at = [&](size_t first, size_t bytes) { return std::span(memory).subspan(first, bytes); };
  const std::vector<Part> sends = {{0, at(0, 2)}, {0, at(4, 3)}, {0, at(8, 0)}, {0, at(9, 1)}};
  const std::vector<Part> receives = {{0, at(2, 2)}, {0, at(4, 3)}, {0, at(8, 0)}, {0, at(10, 1)}};
  const Moves moves = MovesOf(sends, receives, /*rank=*/0);
  ASSERT_EQ(moves.sends.size(), 2u);
  EXPECT_TRUE(Same(moves.sends[0], sends[0]) && Same(moves.receives[0], receives[0]));
  EXPECT_TRUE(Same(moves.sends[1], sends[3]) && Same(moves.receives[1], receives[3]));
}

// ---- Messages.

TEST(MachineErrorsTest, SayWhatWhereAndWhatToDo) {
  const std::vector<int> peers = {0, 1, 3};
  const error::NcclOperation dispatch = {.task = "dispatch", .bytes = 4096, .rank = 2, .peers = peers};
  EXPECT_EQ(error::NcclOverdue(dispatch, 30),
            DeadlineExceeded("rank 0, 1 or 3 did not answer within 30 s: task dispatch, 4096 bytes from rank 2; the "
                             "communicator was aborted"));
  EXPECT_EQ(error::NcclLostPeer(dispatch, "remote process exited"),
            PeerLost("rank 0, 1 or 3 is lost (NCCL: remote process exited): task dispatch, 4096 bytes from rank 2"));
  EXPECT_EQ(error::NcclFailed(dispatch, "internal error"),
            InternalError("task dispatch, 4096 bytes from rank 2: NCCL says internal error; NCCL_DEBUG=INFO tells "
                          "more"));
  EXPECT_THAT(error::StreamFailed("COMPUTE", "experts", "an illegal address").message(),
              HasSubstr("stream COMPUTE failed in task experts or one before it"));
  EXPECT_THAT(error::NoCard(1, 1, "invalid device ordinal").message(),
              HasSubstr("found 1 CUDA cards, expected card 1"));
  EXPECT_EQ(error::NoDeviceMemory(10, 5, 100).code(), StatusCode::kUnavailable);
}

// ---- Ranks meet.

std::vector<std::byte> BytesOfRank(int rank) { return std::vector<std::byte>(128, static_cast<std::byte>(rank + 1)); }

TEST(ShareBytesTest, OverACommunicatorAllGetThoseOfRankZero) {
  testing::RunRanks(3, [](const testing::Rank& rank) {
    const auto shared = ShareOver(rank.world, rank.device)(BytesOfRank(rank.rank));
    ASSERT_TRUE(shared.ok()) << shared.status().message();
    EXPECT_EQ(*shared, BytesOfRank(0));
  });
}

std::string FreshPath(const std::string& name) {
  const auto path = std::filesystem::path(::testing::TempDir()) / StrCat("moeplan_share_", getpid(), "_", name);
  std::filesystem::remove(path);
  return path.string();
}

TEST(ShareBytesTest, ThroughAFileOthersWaitForRankZero) {
  const std::string path = FreshPath("meet");
  StatusOr<std::vector<std::byte>> other = Cancelled("not yet");
  std::thread rank1([&] { other = ShareThroughFile(path, 1, /*deadline_s=*/20)(BytesOfRank(1)); });
  EXPECT_EQ(*ShareThroughFile(path, 0, 20)(BytesOfRank(0)), BytesOfRank(0));
  rank1.join();
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ(*other, BytesOfRank(0));
  std::filesystem::remove(path);
}

TEST(ShareBytesTest, AFileThatDoesNotComeOrIsOfAnotherLengthIsAnError) {
  const std::string path = FreshPath("other");
  EXPECT_EQ(ShareThroughFile(path, 1, /*deadline_s=*/0.01)(BytesOfRank(1)).status().code(),
            StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(ShareThroughFile(path, 0, 20)(std::vector<std::byte>(7)).ok());
  EXPECT_EQ(ShareThroughFile(path, 1, 20)(BytesOfRank(1)).status().code(), StatusCode::kInvalidInput);
  std::filesystem::remove(path);
  EXPECT_EQ(ShareThroughFile("/no/such/folder/file", 0, 20)(BytesOfRank(0)).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace moeplan::executor::cuda
