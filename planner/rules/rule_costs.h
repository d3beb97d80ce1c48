// The costs that the papers' formulas name, looked up for one workload.
//
// A missing entry reads as 0 and is remembered, so that a rule can write its formulas down as printed and ask once, at
// the end, whether they held.
#pragma once

#include <set>
#include <vector>

#include "models/cost/profile.h"
#include "models/status.h"
#include "models/timeline/pricer.h"
#include "models/workload/workload.h"

namespace moeplan {

class RuleCosts {
 public:
  // Both are borrowed.
  RuleCosts(const Workload& workload, const Profile& profile)
      : workload_(workload), gpus_per_node_(profile.cluster.gpus_per_node), pricer_(profile) {}

  // Seconds of a DIRECT collective over a group; 0 for a group of one rank.
  double TimeS(Collective collective, Group group, double bytes) { return TimeS(KeyOver(collective, group), bytes); }

  // Of what is asked over and over, under its key.
  double TimeS(const CostKey& key, double bytes) { return pricer_.Price(key, bytes).time_s; }
  CostKey KeyOver(Collective collective, Group group, Contention contention = Contention::kNone) const {
    return WithContention(Key(collective, group), contention);
  }
  CostKey CopyKey(Contention contention = Contention::kNone) const {
    return WithContention(KeyOf(Kernel::kDeviceCopy, workload_.layer, workload_.layout), contention);
  }

  // Seconds of a kernel that the rule cannot do without.
  double KernelS(Kernel kernel, double size) {
    const CostKey key = KeyOf(kernel, workload_.layer, workload_.layout);
    if (!pricer_.Has(key)) missing_kernels_.insert(Essential(key));
    return pricer_.Has(key) ? pricer_.Price(key, size).time_s : 0;
  }

  bool Has(Collective collective, Group group) const { return pricer_.Has(Key(collective, group)); }
  bool HasCopy() const { return pricer_.Has(CopyKey()); }

  // OK, or kNotFound with the keys that were asked in vain and the command that would measure them.
  Status Missing() const {
    std::vector<CostKey> missing = pricer_.missing();
    missing.insert(missing.end(), missing_kernels_.begin(), missing_kernels_.end());
    return missing.empty() ? OkStatus() : NotFound(MissingReason(missing, workload_.layout));
  }
  const PriceNotes& notes() const { return pricer_.notes(); }

 private:
  CostKey Key(Collective collective, Group group) const {
    CollectiveKey key = KeyOf(collective, group, workload_.layout, gpus_per_node_);
    key.bytes_per_element = workload_.layer.bytes_per_element;
    return key;
  }

  const Workload& workload_;
  int gpus_per_node_;
  Pricer pricer_;
  std::set<CostKey> missing_kernels_;
};

}  // namespace moeplan
