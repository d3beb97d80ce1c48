// Costs of the groups and products that layouts ask for, whether measured or not: looked up once each, with what the
// profile could not say itself remembered.
//
// Not thread-safe. The profile is borrowed and must outlive the book.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/cost/profile.h"
#include "models/cost/shape_surface.h"
#include "models/layout/layout_answer.h"
#include "models/links/link_model.h"
#include "models/step/layer_work.h"
#include "models/timeline/pricer.h"
#include "models/workload/workload.h"
#include "planner/layout/price_rules.h"

namespace moeplan::planner {

// The products of a layer's experts as linear layers, on one rank.
struct ExpertProducts {
  KernelKey product;   // EXPERT_GEMM with the layer's dimensions, the hidden one cut.
  int hidden_dim = 0;  // That; of a shared expert one less where a column tells it apart (WorkloadOf).
  double rows = 0;     // Of all its local experts.
  int experts = 1;
  int matrices = 2;
  bool sorts = false;  // Rows arrive by rank, and are sorted by local expert.
};
// What a schedule asks of them, of an even share: from one piece of many to the rows of the busiest rank. Curves of
// experts span as much, and so does what is measured for them (planner/layout/step_needs.h).
inline constexpr double kLeastExpertPart = 1.0 / 16, kMostExpertPart = 4;
// Both of its routed experts, where they are of the built-in kind, and of its shared one.
std::vector<ExpertProducts> ExpertProductsOf(const Layer& layer, const Layout& layout);

class CostBook {
 public:
  // Of products of a model of this dimension and element size.
  CostBook(const Profile& profile, int model_dim, int bytes_per_element, const PriceRules& rules = {},
           Precision precision = Precision::kBf16);

  // Seconds of a collective on `bytes` as nccl-tests counts them; 0 for none and for a group of one. A group that was
  // not measured is extrapolated (models/links/link_model.h); where that fails, 0, and the key is missing. `stride`:
  // how far apart neighbours of the group are in rank order, for profiles that tell such groups apart; 0: not told.
  double CollectiveS(Collective collective, const GroupShape& group, double bytes, int stride = 0);
  // Seconds in which each of two ranks sends the other `bytes` (models/cost/send.h); otherwise as CollectiveS.
  double SendS(const GroupShape& pair, double bytes, int stride);

  // Seconds of a linear layer's product (IsLinear), of attention and of what moves memory. Where the profile has no
  // linear layers or attention at all, they are products of their flops, attention's gradient two; a kernel that moves
  // memory and is not there is a copy of half the bytes, and nothing where there are no copies. Products in less than
  // BF16 are those of one byte an element or, where the profile has none, those of BF16 at an assumed speedup, beside
  // the conversion of what they read.
  double LinearS(Kernel product, const LinearWork& work);
  double AttentionS(Kernel pass, const AttentionWork& work);
  double MovedS(Kernel kernel, double bytes, int launches);

  // How many times longer compute takes beside experts' exchanges: as products did beside an all-to-all, else as they
  // would on the processors that exchanges leave; 1 where neither is known. At least 1.
  double SlowdownBesideExchange(Dispatcher dispatcher);

  // Seconds that the host takes for so many launches; 0 where the profile does not say.
  double HostS(double launches);

  // Seconds of a matrix product: EXPERT_GEMM of the nearest dimensions, else the cluster's peak, else missing.
  double ProductS(double flops);
  // No products of at least `flops` in all take less, however they are cut.
  double ProductsAtLeastS(double flops) const { return flops * least_per_flop_s_; }

  // What no product in the book's element size is faster than, in flop/s, whatever is computed in less; 0: not known.
  double FastestFlopsPerS() const { return fastest_flops_per_s_; }

  // The profile for PlanLayer on a layer over `layout`: the entries of its groups, what stands in for those that it
  // lacks, and products of the nearest dimensions where none has the experts' or the shared experts'. Other groups are
  // left out. With a dispatcher, the all-to-all of experts is what that takes, and has no other algorithm.
  Profile ForLayer(const Layer& layer, const Layout& layout, const Dispatching& dispatching = {});

  // From here on what the key prices is taken at this end of its 90 % interval; absent: nothing is.
  enum class End { kLow, kHigh };
  struct Lean {
    CostKey key;
    End end = End::kLow;
  };
  void LeanOn(std::optional<Lean> lean) { lean_ = std::move(lean); }

  int gpus_per_node() const { return profile_.cluster.gpus_per_node; }

  // From here on counts how often each kernel and collective is asked for, at which size (planner/layout/step_needs.h).
  // Borrowed; null: it does not.
  using Asked = std::map<std::pair<CostKey, double>, int>;
  void CountInto(Asked* counted) { counted_ = counted; }

  // Since the last Forget.
  const std::set<CostKey>& missing() const { return missing_; }
  bool extrapolated() const { return extrapolated_; }  // Whether a group was.
  const PriceNotes& notes() const { return notes_; }
  // What was priced, whether measured or not, each the key of an error of its own: of products the entry that answers
  // or stands in; of linear layers and attention their kernel without a shape, for what moves all of them together, and
  // each shape that nobody measured.
  const std::set<CostKey>& asked() const { return asked_; }
  // Entries of the profile that answered or stood in.
  const std::set<CostKey>& sources() const { return sources_; }
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
  void Count(const CostKey& key, double size, int times = 1);
  const Entry& Find(Kernel moves_memory);
  // Absent where the profile has no such kernel.
  std::optional<double> ShapedS(const ShapeSurface& surface, int bytes_per_element, Kernel kernel,
                                const KernelShape& shape, double flops);
  // Whether a job's libraries multiplied experts of such a kind, as one grouped call where there are several.
  bool HasLinearExperts(int experts) const;
  double LowPrecisionS(Kernel product, const LinearWork& work);
  double AssumedSpeedup() const;
  double common_error_ratio() const;
  double low_error_ratio() const;  // Beside it, of products in less than BF16.
  // At the end of the interval that is leant on.
  double Lent(const ShapedTime& time, const KernelKey& key) const;
  // Gives the layer's profile its experts' products, from linear layers and activations, where the profile measured
  // those and not these.
  void AddLinearExperts(const Layer& layer, const Layout& layout, Profile& profile);
  // Puts the dispatcher's exchange in the place of the layer's all-to-all; and what that is by the links alone, absent
  // where the profile cannot say.
  void Dispatch(const Dispatching& dispatching, const GroupShape& experts, Profile& profile);
  std::optional<CostModel> FromLinks(const Dispatching& dispatching, const GroupShape& experts);
  bool HasDimensions(const KernelKey& product) const;
  void AddExperts(const ExpertProducts& experts, Profile& profile);

  const Profile& profile_;
  int bytes_per_element_;
  bool tells_strides_ = false;               // Some entry is of groups of one stride alone.
  std::optional<LinkModel> links_;           // Fitted when it is first asked.
  std::optional<double> measured_slowdown_;  // Likewise; 0: it was not measured.
  std::map<CollectiveKey, Entry> collectives_;
  std::map<Kernel, Entry> kernels_;  // That move memory.
  ShapeSurface surface_;
  DispatchFigures dispatch_;
  Precision precision_;
  std::optional<ShapeSurface> low_surface_;  // Of products of one byte an element, for other precisions than BF16.
  std::map<std::tuple<int, Kernel, KernelShape, double>, ShapedTime> shaped_;
  Entry product_;
  double least_per_flop_s_ = 0, fastest_flops_per_s_ = 0;
  std::set<CostKey> missing_;
  bool extrapolated_ = false;
  PriceNotes notes_;
  std::set<CostKey> asked_, sources_;
  std::optional<Lean> lean_;
  Asked* counted_ = nullptr;
};

}  // namespace moeplan::planner
