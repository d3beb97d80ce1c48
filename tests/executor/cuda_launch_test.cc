// Every launch reaches all of its rows and columns once, whatever their number, within the limits of a grid. No GPU.
#include "executor/cuda/launch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "executor/cuda/cell_groups.h"
#include "tests/test_seed.h"

namespace moeplan::executor::cuda {
namespace {

// How often each access of each row is taken when every thread of the launch has run.
std::vector<int> TakenByRows(const RowLaunch& launch, int64_t rows, int accesses) {
  std::vector<int> taken(rows * accesses);
  for (unsigned block = 0; block < launch.blocks; ++block) {
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      for (int64_t row = launch.FirstRow(block, thread); row < rows; row += launch.RowStride()) {
        for (int i = launch.FirstAccess(thread); i < accesses; i += launch.AccessStride()) ++taken[row * accesses + i];
      }
    }
  }
  return taken;
}

bool AreAllOne(const std::vector<int>& taken) {
  return std::ranges::all_of(taken, [](int times) { return times == 1; });
}

TEST(CudaLaunchTest, RowsAreTakenOnceByTheThreadsThatShareThem) {
  for (const int accesses : {1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 127, 129, 255, 512, 1000, 1025, 4099}) {
    for (const int64_t rows : {1, 2, 7, 8, 9, 63, 130}) {
      const RowLaunch launch = LaunchOfRows(rows, accesses);
      ASSERT_EQ(launch.threads_per_row * launch.rows_per_block, kThreads);
      EXPECT_TRUE(AreAllOne(TakenByRows(launch, rows, accesses))) << rows << " rows of " << accesses;
    }
  }
}

TEST(CudaLaunchTest, AGridThatIsTooSmallComesRoundAgain) {
  RowLaunch launch = LaunchOfRows(100, 40);
  launch.blocks = 3;
  EXPECT_TRUE(AreAllOne(TakenByRows(launch, 100, 40)));
}

TEST(CudaLaunchTest, LongRowsHaveManyThreadsAndShortOnesShareABlock) {
  // 8 KiB are 512 accesses: four each for 128 threads, so two rows a block.
  EXPECT_EQ(LaunchOfRows(10, 512).threads_per_row, 128);
  EXPECT_EQ(LaunchOfRows(10, 512).blocks, 5);
  EXPECT_EQ(LaunchOfRows(10, 512, /*of_a_thread=*/8).threads_per_row, 64);
  // 40 accesses: no less than a warp.
  EXPECT_EQ(LaunchOfRows(10, 40).threads_per_row, 32);
  // 3 accesses: 4 threads, 64 rows a block.
  EXPECT_EQ(LaunchOfRows(65, 3).rows_per_block, 64);
  EXPECT_EQ(LaunchOfRows(65, 3).blocks, 2);
  EXPECT_EQ(LaunchOfRows(1, 1 << 20).threads_per_row, kThreads);
}

TEST(CudaLaunchTest, WarpsHaveOneRowEach) {
  const RowLaunch launch = LaunchOfWarps(1001);
  EXPECT_EQ(launch.threads_per_row, 32);
  EXPECT_EQ(launch.blocks, 126);  // 8 a block.
  EXPECT_TRUE(AreAllOne(TakenByRows(launch, 1001, 5)));
}

TEST(CudaLaunchTest, NothingIsNotLaunched) {
  EXPECT_EQ(LaunchOfRows(0, 8).blocks, 0);
  EXPECT_EQ(LaunchOfRows(8, 0).blocks, 0);
  EXPECT_EQ(LaunchOfWarps(0).blocks, 0);
  EXPECT_EQ(LaunchOfItems(0, 5).blocks_y, 0);
  EXPECT_EQ(LaunchOfItems(5, 0).blocks_x, 0);
  EXPECT_EQ(LaunchOfGate(0, 8).blocks, 0);
  EXPECT_EQ(LaunchOfTiles(0, 8, 64, 64).blocks_x, 0);
}

TEST(CudaLaunchTest, AccessesOfItemsAreTakenOnceAndGridsStayWithinTheirLimits) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 200; ++i) {
    const int items = 1 + static_cast<int>(random() % 90000);
    const int64_t accesses = 1 + static_cast<int64_t>(random() % 9000);
    const ItemLaunch launch = LaunchOfItems(items, accesses);
    ASSERT_LE(launch.blocks_y, static_cast<unsigned>(kMaxGridY));
    std::vector<int> items_taken(items), taken(accesses);
    for (unsigned y = 0; y < launch.blocks_y; ++y) {
      for (int item = static_cast<int>(y); item < items; item += static_cast<int>(launch.blocks_y)) ++items_taken[item];
    }
    for (unsigned x = 0; x < launch.blocks_x; ++x) {
      for (unsigned thread = 0; thread < kThreads; ++thread) {
        for (int64_t access = launch.FirstAccess(x, thread); access < accesses; access += launch.AccessStride())
          ++taken[access];
      }
    }
    EXPECT_TRUE(AreAllOne(items_taken)) << items;
    EXPECT_TRUE(AreAllOne(taken)) << accesses;
  }
  EXPECT_EQ(LaunchOfRows(int64_t{1} << 50, 1 << 10).blocks, kMaxGridX);
}

TEST(CudaLaunchTest, OnlyRowsOfWholeSixteenBytesAreTakenSixteenBytesAtATime) {
  alignas(16) char data[32];
  EXPECT_EQ(ElementsPerAccess(2, 64, {data, data + 16}), 8);
  EXPECT_EQ(ElementsPerAccess(4, 64, {data}), 4);
  EXPECT_EQ(ElementsPerAccess(2, 66, {data}), 1);            // 33 BF16 elements.
  EXPECT_EQ(ElementsPerAccess(2, 64, {data, data + 2}), 1);  // One buffer begins between.
  EXPECT_EQ(ElementsPerAccess(2, 64, {data, nullptr}), 8);   // One is not there.
}

TEST(CudaLaunchTest, GateBlocksHaveAsManyTokensAsCountsCanBeSummedUpFor) {
  // 128 / 4 tokens at a time; 2048 blocks of them are 65,536.
  EXPECT_EQ(LaunchOfGate(1000, 4).tokens_per_block, 32);
  EXPECT_EQ(LaunchOfGate(1000, 4).blocks, 32);  // 31 full ones, and 8 tokens.
  EXPECT_EQ(LaunchOfGate(65536, 4).tokens_per_block, 32);
  EXPECT_EQ(LaunchOfGate(65537, 4).tokens_per_block, 64);
  for (const int lanes : {1, 2, 4, 8, 16, 32}) {
    for (const int tokens : {1, 127, 128, 777, 100000, 5000000, 2000000000}) {
      const GateLaunch launch = LaunchOfGate(tokens, lanes);
      EXPECT_EQ(launch.tokens_per_block % (kGateThreads / lanes), 0);
      EXPECT_LE(launch.blocks, kMostGateBlocks);
      EXPECT_GE(int64_t{launch.blocks} * launch.tokens_per_block, tokens);
      EXPECT_LT(int64_t{launch.blocks - 1} * launch.tokens_per_block, tokens);
    }
  }
}

TEST(CudaLaunchTest, TilesCoverTheMatrix) {
  const TileLaunch launch = LaunchOfTiles(65, 129, 64, 32);
  EXPECT_EQ(launch.blocks_x, 2);
  EXPECT_EQ(launch.blocks_y, 5);
}

TEST(CudaCellGroupsTest, RunsOfTheSameTargetAreGroups) {
  const std::vector<CellPair> pairs = {{4, 1}, {2, 1}, {0, 0}, {1, 2}, {3, 2}, {5, 2}};
  EXPECT_EQ(FirstPairsOf(pairs), (std::vector<int32_t>{0, 2, 3, 6}));
  EXPECT_EQ(FirstPairsOf({}), (std::vector<int32_t>{0}));
}

}  // namespace
}  // namespace moeplan::executor::cuda
