// Looks up what single operations cost and remembers what the profile could not say.
//
// Shared by PriceGraph and by the rules of planner/, so that a missing or extrapolated cost is treated and worded the
// same everywhere. Not thread-safe: one Pricer per thread. The profile, or the index of one, is borrowed and must
// outlive it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/cost/operation.h"
#include "models/timeline/cost_index.h"

namespace moeplan {

// A key that was asked outside the range it was measured in, and how far.
struct Extrapolation {
  double asked_low = 0, asked_high = 0;  // The smallest and the largest size asked outside the range.
  double measured_low = 0, measured_high = 0;

  friend bool operator==(const Extrapolation&, const Extrapolation&) = default;
};

// What a reader of the numbers should know: one entry a key, however often it was asked.
struct PriceNotes {
  std::map<CostKey, Extrapolation> extrapolated;
  std::set<CostKey> priced_zero;  // Kernels that are not in the profile and were taken as free.
  std::set<std::string> remarks;  // Anything else, already worded.

  void Merge(const PriceNotes& other);
  // One sentence each, in a fixed order.
  std::vector<std::string> Warnings() const;

  friend bool operator==(const PriceNotes&, const PriceNotes&) = default;
};

class Pricer {
 public:
  explicit Pricer(const Profile& profile) : own_index_(profile) {}
  explicit Pricer(CostIndex& index) : shared_index_(&index) {}

  // The time of `size` under the key, with the 90 % interval of a median of runs; contended keys fall back to
  // uncontended ones. 0 for size 0 and for a group of one rank, which need no entry. 0 when the profile has no entry:
  // remembered as missing for a collective or an EXPERT_GEMM, as priced zero for another kernel.
  PricedTime Price(const CostKey& key, double size);

  // The least that one size from `low` to `high` takes under the key; 0 where Price is.
  double LeastPriceS(const CostKey& key, double low, double high);

  // How many times longer the key's operation takes under `contention`, at least 1, and the 90 % interval that the
  // contended model's errors give it; 1 where that was not measured. Beyond the sizes at which it was measured it is
  // that of the nearest one. What has no contended entry of its own is slowed down like its kin: the gradients of
  // experts like EXPERT_GEMM, an all-to-all by another algorithm like DIRECT; what was not measured with communication
  // of at most `ctas` CTAs, a collective's own CTAs among them, as with unlimited one.
  struct SlowdownRange {
    double mid = 1, low = 1, high = 1;
  };
  SlowdownRange Slowdown(const CostKey& key, Contention contention, double size, int ctas = 0);

  // Whether the profile can answer for the key.
  bool Has(const CostKey& key) const;

  // In ascending order, each once, as Essential keys.
  std::vector<CostKey> missing() const { return {missing_.begin(), missing_.end()}; }
  const PriceNotes& notes() const { return notes_; }

 private:
  // With a note or a missing key, where the source says so.
  const CostIndex::Source& SourceOf(const CostKey& asked);
  PricedTime PriceWith(const CostModel& model, const CostKey& key, double bus_factor, double size);
  void NoteExtrapolation(const CostKey& key, const CostModel& model, double size);

  CostIndex& index() { return shared_index_ != nullptr ? *shared_index_ : *own_index_; }
  const CostIndex& index() const { return shared_index_ != nullptr ? *shared_index_ : *own_index_; }

  CostIndex* shared_index_ = nullptr;
  std::optional<CostIndex> own_index_;  // Where none is shared.
  std::set<CostKey> missing_;
  PriceNotes notes_;
};

}  // namespace moeplan
