#include "planner/service/sample_writer.h"

#include <chrono>
#include <utility>

#include "models/check.h"
#include "planner/service/errors.h"
#include "proto/grpc_status.h"

namespace moeplan::service {
namespace {

// Callers of the first batch of a group wait for the last.
constexpr size_t kMostSamplesInGroup = 20000;
constexpr std::chrono::milliseconds kPause{1};

}  // namespace

SampleWriter::SampleWriter(Store& store, size_t queue_capacity)
    : store_(store), queue_capacity_(queue_capacity), thread_([this] { Work(); }) {
  MOEPLAN_CHECK(queue_capacity >= 1);
}

SampleWriter::~SampleWriter() {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
}

StatusOr<BatchOutcome> SampleWriter::Append(SampleBatch batch) {
  Waiting waiting = {.batch = std::move(batch)};
  std::future<StatusOr<BatchOutcome>> outcome = waiting.outcome.get_future();
  {
    const std::scoped_lock lock(mutex_);
    if (waiting_.size() == queue_capacity_ || closing_) return FromGrpc(error::QueueFull());
    waiting_.push_back(std::move(waiting));
  }
  changed_.notify_all();
  return outcome.get();
}

void SampleWriter::Work() {
  for (std::vector<Waiting> group = Next(); !group.empty(); group = Next()) {
    Commit(std::move(group));
    Pause();
  }
}

std::vector<SampleWriter::Waiting> SampleWriter::Next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
  std::vector<Waiting> group;
  for (size_t samples = 0; !waiting_.empty() && samples < kMostSamplesInGroup; waiting_.pop_front()) {
    samples += waiting_.front().batch.samples.samples.size();
    group.push_back(std::move(waiting_.front()));
  }
  return group;
}

void SampleWriter::Commit(std::vector<Waiting> group) {
  std::vector<SampleBatch> batches;
  for (Waiting& waiting : group) batches.push_back(std::move(waiting.batch));
  const auto outcomes = store_.AppendEach(batches);
  for (size_t i = 0; i < group.size(); ++i) {
    group[i].outcome.set_value(outcomes.ok() ? (*outcomes)[i] : StatusOr<BatchOutcome>(outcomes.status()));
  }
}

void SampleWriter::Pause() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPause, [this] { return closing_; });
}

}  // namespace moeplan::service
