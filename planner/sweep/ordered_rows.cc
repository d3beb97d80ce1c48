#include "planner/sweep/ordered_rows.h"

#include <utility>

namespace moeplan::planner {

OrderedRows::OrderedRows(int64_t rows, int window) : rows_(rows), slots_(window) {}

std::optional<int64_t> OrderedRows::Take() {
  std::unique_lock lock(mutex_);
  const auto window = static_cast<int64_t>(slots_.size());
  room_.wait(lock, [&] { return stop_.stop_requested() || taken_ == rows_ || taken_ < read_ + window; });
  if (stop_.stop_requested() || taken_ == rows_) return std::nullopt;
  return taken_++;
}

void OrderedRows::Put(int64_t index, StatusOr<SweepRow> row) {
  const std::lock_guard lock(mutex_);
  slots_[index % slots_.size()] = std::move(row);
  ready_.notify_one();
}

std::optional<StatusOr<SweepRow>> OrderedRows::Next() {
  std::unique_lock lock(mutex_);
  auto& slot = slots_[read_ % slots_.size()];
  ready_.wait(lock, [&] { return stop_.stop_requested() || slot.has_value(); });
  if (stop_.stop_requested()) return std::nullopt;
  StatusOr<SweepRow> row = *std::exchange(slot, std::nullopt);
  ++read_;
  room_.notify_all();
  return row;
}

void OrderedRows::Stop() {
  const std::lock_guard lock(mutex_);
  stop_.request_stop();
  room_.notify_all();
  ready_.notify_all();
}

}  // namespace moeplan::planner
