// Costs of the groups and products that layouts ask for, whether measured or not: looked up once each, with what the
// profile could not say itself remembered.
//
// Not thread-safe. The profile is borrowed and must outlive the book.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/cost/profile.h"
#include "models/links/link_model.h"
#include "models/timeline/pricer.h"
#include "models/workload/workload.h"

namespace moeplan::planner {

class CostBook {
 public:
  // Of products of a model of this dimension and element size.
  CostBook(const Profile& profile, int model_dim, int bytes_per_element);

  // Seconds of a collective on `bytes` as nccl-tests counts them; 0 for none and for a group of one. A group that was
  // not measured is extrapolated (models/links/link_model.h); where that fails, 0, and the key is missing.
  double CollectiveS(Collective collective, const GroupShape& group, double bytes);

  // Seconds of a matrix product: EXPERT_GEMM of the nearest dimensions, else the cluster's peak, else missing.
  double ProductS(double flops);
  // No products of at least `flops` in all take less, however they are cut.
  double ProductsAtLeastS(double flops) const { return flops * least_per_flop_s_; }

  // What no product is faster than, in flop/s; 0: not known.
  double FastestFlopsPerS() const { return least_per_flop_s_ > 0 ? 1 / least_per_flop_s_ : 0; }

  // The profile for PlanLayer on a layer over `layout`: the entries of its groups, what stands in for those that it
  // lacks, and products of the nearest dimensions where none has the experts' or the shared experts'. Other groups are
  // left out.
  Profile ForLayer(const Layer& layer, const Layout& layout);

  // From here on what the key prices is taken at this end of its 90 % interval; absent: nothing is.
  enum class End { kLow, kHigh };
  struct Lean {
    CostKey key;
    End end = End::kLow;
  };
  void LeanOn(std::optional<Lean> lean) { lean_ = std::move(lean); }

  int gpus_per_node() const { return profile_.cluster.gpus_per_node; }

  // Since the last Forget.
  const std::set<CostKey>& missing() const { return missing_; }
  bool extrapolated() const { return extrapolated_; }  // Whether a group was.
  const PriceNotes& notes() const { return notes_; }
  // What was priced, whether measured or not; of products the entry that answers or stands in.
  const std::set<CostKey>& asked() const { return asked_; }
  void Forget();

 private:
  struct Entry {
    CostKey key;
    std::optional<CostModel> model;  // Absent: missing.
    std::string stand_in;            // Empty: measured.
  };
  const Entry& Find(const CollectiveKey& key);
  // Gives the layer's profile what the product is priced as, where it was not measured: the nearest, else the peak.
  void StandInFor(const KernelKey& product, const char* what, Profile& profile);
  double TimeOf(const Entry& entry, double size, double bus_factor);

  const Profile& profile_;
  int bytes_per_element_;
  std::optional<LinkModel> links_;  // Fitted when it is first asked.
  std::map<CollectiveKey, Entry> collectives_;
  Entry product_;
  double least_per_flop_s_ = 0;
  std::set<CostKey> missing_;
  bool extrapolated_ = false;
  PriceNotes notes_;
  std::set<CostKey> asked_;
  std::optional<Lean> lean_;
};

}  // namespace moeplan::planner
