// Hands indices to workers and their results, in the order of the indices, to one reader, with a bounded number of
// results in between: a slow first row holds the workers up rather than filling memory.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "planner/sweep/sweep.h"

namespace moeplan::planner {

class OrderedRows {
 public:
  // Indices 0 to rows - 1; at most `window` of them, at least 1, are taken and not yet read.
  OrderedRows(int64_t rows, int window);

  // The next index; nothing when there is none left or the reader has stopped. Blocks while the window is full. Any
  // thread.
  std::optional<int64_t> Take();
  // The result for an index that was taken. Any thread.
  void Put(int64_t index, StatusOr<SweepRow> row);

  // The result of the next index, from 0 on; nothing after Stop. Blocks. One thread, at most `rows` times.
  std::optional<StatusOr<SweepRow>> Next();
  // No further index and no further result is handed out. Any thread.
  void Stop();
  std::stop_token stopped() const { return stop_.get_token(); }

 private:
  const int64_t rows_;
  std::mutex mutex_;
  std::condition_variable room_, ready_;
  std::vector<std::optional<StatusOr<SweepRow>>> slots_;  // Guarded by mutex_, as are the next two.
  int64_t taken_ = 0;
  int64_t read_ = 0;
  std::stop_source stop_;
};

}  // namespace moeplan::planner
