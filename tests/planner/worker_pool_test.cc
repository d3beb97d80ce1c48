#include "planner/service/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace moeplan::service {
namespace {

TEST(WorkerPoolTest, RefusesWhatNeitherRunsNorFits) {
  std::latch go(1);
  std::atomic<int> done = 0;
  {
    WorkerPool pool(/*workers=*/1, /*queue_capacity=*/2);
    const auto job = [&] {
      go.wait();
      ++done;
    };
    EXPECT_TRUE(pool.TrySubmit(job));
    EXPECT_TRUE(pool.TrySubmit(job));
    EXPECT_TRUE(pool.TrySubmit(job));
    EXPECT_FALSE(pool.TrySubmit(job));
    EXPECT_EQ(pool.in_progress(), 3);
    go.count_down();
  }
  EXPECT_EQ(done, 3);  // The pool's end is the end of what it took.
}

TEST(WorkerPoolTest, RunsInTheOrderTakenAndMakesRoomAgain) {
  std::vector<int> order;
  {
    WorkerPool pool(/*workers=*/1, /*queue_capacity=*/0);
    for (int i = 0; i < 100; ++i) {
      while (!pool.TrySubmit([&order, i] { order.push_back(i); })) std::this_thread::yield();
    }
  }
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(WorkerPoolTest, WhatRunsHasAName) {
  std::latch begun(2), go(1);
  WorkerPool pool(/*workers=*/2, /*queue_capacity=*/1);
  const auto job = [&] {
    begun.count_down();
    go.wait();
  };
  ASSERT_TRUE(pool.TrySubmit(job, {.method = "/a", .request_id = "1"}));
  ASSERT_TRUE(pool.TrySubmit(job, {.method = "/b", .request_id = "2"}));
  begun.wait();
  ASSERT_TRUE(pool.TrySubmit([] {}, {.method = "/waits", .request_id = "3"}));
  std::set<std::string> names;
  for (const WorkerPool::RunningJob& running : pool.running()) names.insert(running.name.method);
  EXPECT_EQ(names, (std::set<std::string>{"/a", "/b"}));
  go.count_down();
  pool.End();
  EXPECT_TRUE(pool.running().empty());
  EXPECT_FALSE(pool.TrySubmit([] {}));
}

TEST(WorkerPoolTest, WorkersRunAtTheSameTime) {
  std::latch all_here(3);
  WorkerPool pool(/*workers=*/3, /*queue_capacity=*/0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(pool.TrySubmit([&] { all_here.arrive_and_wait(); }));
  // With fewer than three at once the latch would hold up the end for good.
}

}  // namespace
}  // namespace moeplan::service
