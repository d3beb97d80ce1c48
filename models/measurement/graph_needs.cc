#include "models/measurement/graph_needs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace moeplan {
namespace {

constexpr double kCopiesApart = 4;  // Between two sizes of copies.

class Collector {
 public:
  Collector(const TrainingGraph& graph, const Cluster& cluster) : graph_(graph), cluster_(cluster) {}

  std::vector<Need> Collect() {
    for (const Instruction& one : graph_.instructions) {
      for (int parts = 1; parts <= MostPartsOf(one, graph_.max_parts); parts *= 2) AddPart(one, parts);
      if (one.counts_bytes && HasGroup(one)) Add(CollectiveWork(one).key, *one.counts_bytes);
      if (one.phase == Pass::kBackward) continue;  // Nothing is put together there.
      for (const double bytes : one.output_bytes) smallest_copy_ = std::min(smallest_copy_, std::max(bytes, 1.0));
      for (const double bytes : one.output_bytes) largest_copy_ = std::max(largest_copy_, bytes);
    }
    AddCopies();
    AddContention();
    std::vector<Need> needs;
    for (const auto& [what, weight] : needs_) needs.push_back({what.first, what.second, weight});
    std::ranges::stable_sort(needs, std::ranges::greater(), &Need::weight);
    return needs;
  }

 private:
  static bool HasGroup(const Instruction& one) {
    return one.bytes && one.ranks_per_node && one.group_size.value_or(1) > 1;
  }

  void Add(const CostKey& key, double size) { needs_[{Essential(key), size}] += NominalS(key, size, cluster_); }

  void AddPart(const Instruction& one, int parts) {
    for (const Work& work : one.work) {
      Add(work.key, work.size / parts);
      const auto& kernel = std::get<KernelKey>(work.key);
      if (kernel.kernel == Kernel::kExpertGemm && (!product_ || work.size > product_->size)) product_ = work;
    }
    if (!CollectiveOf(one.op) || !HasGroup(one)) return;
    const Work work = CollectiveWork(one, parts);
    Add(work.key, work.size);
    sizes_[{StreamOf(one), work.key}].insert(work.size);
  }

  void AddCopies() {
    if (largest_copy_ <= 0) return;
    for (double bytes = smallest_copy_; bytes < kCopiesApart * largest_copy_; bytes *= kCopiesApart) {
      Add(KernelKey{.kernel = Kernel::kDeviceCopy}, bytes);
    }
  }

  static Contention Imposed(const CostKey& key) {
    return std::get<CollectiveKey>(key).collective == Collective::kAllToAll ? Contention::kWithAllToAll
                                                                            : Contention::kWithAllGather;
  }

  void AddContention() {
    std::map<StreamKind, std::set<Contention>> imposed;  // By each stream.
    for (const auto& [what, sizes] : sizes_) imposed[what.first].insert(Imposed(what.second));
    std::set<Contention> beside_products;
    for (const auto& [what, sizes] : sizes_) {
      std::set<Contention> beside = {Contention::kWithExpertGemm};
      for (const auto& [stream, kinds] : imposed) {
        if (stream != what.first) beside.insert(kinds.begin(), kinds.end());
      }
      for (const double size : sizes) {
        for (const Contention contention : beside) Add(WithContention(what.second, contention), size);
      }
      beside_products.insert(Imposed(what.second));
    }
    if (!product_) return;
    for (const Contention contention : beside_products) Add(WithContention(product_->key, contention), product_->size);
  }

  const TrainingGraph& graph_;
  const Cluster& cluster_;
  std::map<std::pair<CostKey, double>, double> needs_;                // With what hangs on them.
  std::map<std::pair<StreamKind, CostKey>, std::set<double>> sizes_;  // Of collectives.
  std::optional<Work> product_;                                       // The largest of experts.
  double smallest_copy_ = 1e18, largest_copy_ = 0;
};

}  // namespace

std::vector<Need> NeedsOfGraph(const TrainingGraph& graph, const Cluster& cluster) {
  return Collector(graph, cluster).Collect();
}

}  // namespace moeplan
