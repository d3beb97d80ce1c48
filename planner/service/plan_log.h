// Keeps answered plans in the store, for runs to refer to.
//
// It writes through a Store of its own that hardly waits for other writers, so that keeping a plan never holds up the
// calls that read. Every rank of a job asks for the same plan: an answer that was kept lately is not kept again.
#pragma once

#include <cstddef>
#include <filesystem>
#include <mutex>
#include <unordered_set>

#include "db/store.h"
#include "models/status.h"
#include "moeplan/v1/plan.pb.h"

namespace moeplan::service {

// As the store keeps it: the texts are the messages as compact JSON.
PlanRecord RecordOf(const v1::PlanResponse& answer);

class PlanLog {
 public:
  static StatusOr<PlanLog> Open(const std::filesystem::path& path);
  PlanLog(PlanLog&& other) noexcept : store_(std::move(other.store_)) {}

  // Any thread.
  Status Keep(const v1::PlanResponse& answer);

 private:
  explicit PlanLog(Store store) : store_(std::move(store)) {}
  // Whether `digest` is new.
  bool Remember(size_t digest);
  void Forget(size_t digest);

  Store store_;
  std::mutex mutex_;
  std::unordered_set<size_t> recent_;  // Digests of answers; guarded by mutex_.
};

}  // namespace moeplan::service
