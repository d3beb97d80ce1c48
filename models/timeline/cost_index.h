// Which entries of a profile answer for a key, looked up once each.
//
// What prices many graphs of one profile shares one. Not thread-safe: one a thread. The profile is borrowed, must
// outlive it and stay as it is.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "models/cost/operation.h"
#include "models/cost/profile.h"


namespace moeplan {

class CostIndex {
 public:
  explicit CostIndex(const Profile& profile) : profile_(profile) {}

  const Profile& profile() const { return profile_; }
  // Whether anything was measured beside something else.
  bool has_contention();

  struct Source {
    CostKey asked;
    CostKey key;                       // What answers; where nothing does, what would.
    const CostModel* model = nullptr;  // Null: not in the profile.
    double bus_factor = 1;             // Of the operation that answers.
    bool stands_in = false;            // A built-in expert's product for an own one's.
  };
  // Contended keys fall back to uncontended ones, the gradients of experts to EXPERT_GEMM, own experts to built-in
  // ones. Valid until the next call.
  const Source& SourceOf(const CostKey& asked);

  // The models whose ratio is a slowdown.
  struct Slowdown {
    CostKey asked;
    Contention contention = Contention::kNone;
    int ctas = 0;
    CostKey key;                        // Of `beside`.
    const CostModel* beside = nullptr;  // Null: no contention was measured.
    const CostModel* alone = nullptr;   // Not null where `beside` is not.
    double bus_factor = 1;
  };
  // Pricer::Slowdown says who answers for whom. Valid until the next call.
  const Slowdown& SlowdownOf(const CostKey& asked, Contention contention, int ctas);

  // The key of the entry that answers for an uncontended `key`, or of the one that should.
  CostKey Answering(const CostKey& key) const;

  // The profile's own key of the entry that answers, as SourceOf finds it; absent: none does.
  std::optional<CostKey> EntryOf(const CostKey& asked);

 private:
  // For a source whose very key has no entry.
  void LookElsewhere(Source& source) const;

  const Profile& profile_;
  std::optional<bool> has_contention_;  // Once it was asked.
  // Entries and their hashes, in the order of asking: there are some dozens.
  std::vector<size_t> source_hashes_, slowdown_hashes_;
  std::vector<Source> sources_;
  std::vector<Slowdown> slowdowns_;
};

}  // namespace moeplan
