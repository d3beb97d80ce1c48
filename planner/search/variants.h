// Which variants of each family a search tries under one profile.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "models/cost/profile.h"
#include "models/measurement/cost_key.h"
#include "models/plan/plan.h"
#include "models/workload/workload.h"

namespace moeplan::planner {

// Whether the variant encodes what it exchanges, in either direction.
bool HasCodec(const Knobs& knobs);

// Workload, which is resolved, and profile are borrowed.
class Variants {
 public:
  Variants(const Workload& workload, const Profile& profile);

  struct OfFamily {
    std::vector<Knobs> tried;           // Without codecs, the simplest first.
    std::vector<CostKey> not_measured;  // Exchanges by other all-to-all algorithms that the profile lacks.
  };
  // Every variant whose all-to-all was measured, and every DIRECT one, whose costs are told to be missing when it is
  // priced; each of them again under every limit on CTAs that its all-to-all was measured with, larger limits first.
  OfFamily Of(Family family) const;

  // The variant with codecs. A codec that was not measured would cost nothing, and win, so that only those are tried
  // which the profile knows or the request names.
  std::vector<Knobs> Coded(const Knobs& variant) const;

 private:
  CollectiveKey ExchangeKey(const Knobs& knobs) const;
  void AddLimited(Knobs variant, std::vector<Knobs>& variants) const;
  bool IsKnown(Codec codec, Codec named) const;

  const Workload& workload_;
  const Profile& profile_;
  const std::set<int, std::greater<>> limits_;  // On CTAs, that some collective was measured with.
};

}  // namespace moeplan::planner
