// Stores what many callers bring, with one sync for all that has arrived.
//
// A sync costs milliseconds, a sample microseconds: while one group of batches is being committed the next gathers.
// Between two groups the writer pauses for a millisecond, so that other writers of the file get their turn.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "db/store.h"
#include "models/status.h"

namespace moeplan::service {

class SampleWriter {
 public:
  // `store` is borrowed for the writer's life. Up to `queue_capacity` batches may wait; at least 1.
  explicit SampleWriter(Store& store, size_t queue_capacity = 256);

  // Stores what was taken.
  ~SampleWriter();
  SampleWriter(const SampleWriter&) = delete;
  SampleWriter& operator=(const SampleWriter&) = delete;

  // Returns once the batch is committed and synced, or refused as by Store::AppendEach. kUnavailable at once when too
  // many are waiting. Any thread.
  StatusOr<BatchOutcome> Append(SampleBatch batch);

 private:
  struct Waiting {
    SampleBatch batch;
    std::promise<StatusOr<BatchOutcome>> outcome;
  };

  void Work();
  // The next group; empty when there is none and none will come.
  std::vector<Waiting> Next();
  void Commit(std::vector<Waiting> group);
  void Pause();

  Store& store_;
  const size_t queue_capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;  // Guarded by mutex_, as is the next.
  bool closing_ = false;
  std::jthread thread_;  // Last: it uses all of the above.
};

}  // namespace moeplan::service
