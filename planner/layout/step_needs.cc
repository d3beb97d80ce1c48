#include "planner/layout/step_needs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "planner/layout/cost_book.h"
#include "planner/layout/layout_rules.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/moe_plans.h"
#include "planner/layout/rank_memory.h"
#include "planner/layout/step_time.h"

namespace moeplan::planner {
namespace {

constexpr int kMostSamples = 4;  // Of a micro-batch.
constexpr double kApart = 4;     // Between neighbouring sizes of a key.
// A piece of an exchange brings the least of these parts of a layer's rows, an even share is all of them, and the
// busiest rank may have the most.
constexpr double kParts[] = {kLeastExpertPart, 0.25, 1, kMostExpertPart};
constexpr double kMostMovedBytes = 1 << 30;  // Beyond, a kernel moves memory at a constant rate.
constexpr int kShorter = 8;                  // Sequences of the usual length over this are measured, too.
constexpr double kMostLaunches = 1024;       // Both passes of a few layers.

int LongestOf(const ModelConfig& model) {
  return model.max_positions > 0 ? std::min(kUsualSequence, model.max_positions) : kUsualSequence;
}

LayoutRequest RequestFor(const ModelConfig& model, const Cluster& cluster) {
  LayoutRequest request;
  request.model = model;
  request.gpus = Ranks(cluster);
  request.global_batch = kMostSamples * request.gpus;
  request.sequence_length = LongestOf(model);
  request.zero_stage = 1;
  return request;
}

class StepNeeds {
 public:
  StepNeeds(const ModelConfig& model, const Cluster& cluster)
      : cluster_(cluster),
        request_(RequestFor(model, cluster)),
        nothing_{.cluster = cluster},
        book_(nothing_, model.model_dim, request_.bytes_per_element) {
    book_.CountInto(&asked_);
  }

  StatusOr<std::vector<Need>> Run() {
    RETURN_IF_ERROR(CheckLayoutRequest(request_, cluster_));
    int points = 0;
    for (const int sequence : {LongestOf(request_.model), std::max(1, LongestOf(request_.model) / kShorter)}) {
      request_.sequence_length = sequence;
      for (const LayoutPoint& point : Points()) Ask(point), ++points;
    }
    if (points == 0) {
      return InvalidInput(StrCat("the model: found none of its layouts on ", request_.gpus,
                                 " GPUs, expected numbers of heads, layers and experts that share divisors with them"));
    }
    for (double launches = 16; launches <= kMostLaunches; launches *= kApart) {
      asked_[{KernelKey{.kernel = Kernel::kHostLaunch}, launches}] += points;
    }
    return Ordered();
  }

 private:
  // Those that may fit, if any may.
  std::vector<LayoutPoint> Points() const {
    std::vector<LayoutPoint> all, fit;
    for (const LayoutPoint& point : AllLayoutPoints(request_, cluster_)) {
      if (point.micro_batch > kMostSamples) continue;
      all.push_back(point);
      const double bytes = RankMemoryOf(request_, point, {}).total_bytes();
      if (cluster_.device_memory_bytes <= 0 || bytes <= cluster_.device_memory_bytes) fit.push_back(point);
    }
    return fit.empty() ? all : fit;
  }

  void Ask(const LayoutPoint& point) {
    PriceStep(request_, point, {}, book_);
    if (request_.model.moe_layers() == 0) return;
    const Workload workload = WorkloadOf(request_, QuestionOf(request_, point));
    for (const ExpertProducts& experts : ExpertProductsOf(workload.layer, workload.layout)) {
      for (const double part : kParts) AskExperts(experts, part * experts.rows);
    }
    const LayerSizes sizes = SizesOf(workload.layer, workload.layout);
    for (const CollectiveKey& key : LayerCollectives(workload.layer, workload.layout, cluster_.gpus_per_node)) {
      if (key.algorithm != AllToAllAlgorithm::kDirect) continue;
      const double bytes = key.collective == Collective::kAllToAll ? sizes.dispatched_bytes : sizes.input_bytes;
      for (const double part : {kLeastExpertPart, 0.25, 1.0}) ++asked_[{Essential(key), part * bytes}];
    }
  }

  void AskExperts(const ExpertProducts& asked, double rows) {
    const int model_dim = *asked.product.model_dim, hidden_dim = asked.hidden_dim;
    for (const LinearWork& linear : ExpertLinears(model_dim, hidden_dim, asked.matrices, rows, asked.experts)) {
      for (const Kernel product : {Kernel::kLinear, Kernel::kLinearInputGradient, Kernel::kLinearWeightGradient}) {
        book_.LinearS(product, linear);
      }
    }
    const MovedWork activation = ActivationWork(rows, hidden_dim, asked.matrices, request_.bytes_per_element);
    book_.MovedS(activation.kernel, activation.forward_bytes, activation.forward_launches);
  }

  // A library takes whole sequences: contexts that share one are priced between such points.
  static bool CanBeMeasured(const CostKey& key, double size) {
    const auto* kernel = std::get_if<KernelKey>(&key);
    if (kernel == nullptr || !IsAttention(kernel->kernel)) return true;
    const double batch = size / AttentionFlops(kernel->shape);
    return batch >= 1 && batch == std::floor(batch);
  }

  std::vector<Need> Ordered() const {
    std::map<CostKey, KeySizes> keys;
    for (const auto& [asked, count] : asked_) {
      const auto& [key, size] = asked;
      if (!CanBeMeasured(key, size)) continue;
      KeySizes& one = keys[key];
      one.key = key;
      one.sizes.push_back(size);  // Ascending, as the map is.
      one.weight += count * NominalS(key, size, cluster_);
    }
    std::vector<KeySizes> apart;
    for (auto& [key, one] : keys) {
      one.sizes = Apart(key, one.sizes);
      apart.push_back(std::move(one));
    }
    return EndsFirst(apart);
  }

  // Both ends, and between them sizes at least kApart from each other. What moves memory is cheap to measure and asked
  // for at other sizes by other batches, so it is measured beyond them, but for the largest.
  static std::vector<double> Apart(const CostKey& key, std::vector<double> sizes) {
    const auto* kernel = std::get_if<KernelKey>(&key);
    if (kernel != nullptr && !CountsFlops(kernel->kernel) && kernel->kernel != Kernel::kHostLaunch) {
      for (double& size : sizes) size = std::min(size, kMostMovedBytes);
      sizes.insert(sizes.begin(), sizes.front() / kApart);
      sizes.push_back(std::min(kMostMovedBytes, kApart * sizes.back()));
    }
    std::vector<double> kept = {sizes.front()};
    for (const double size : sizes) {
      if (size >= kApart * kept.back() && kApart * size <= sizes.back()) kept.push_back(size);
    }
    constexpr double kTheSame = 1.05;
    if (sizes.back() > kTheSame * kept.back()) kept.push_back(sizes.back());
    return kept;
  }

  const Cluster cluster_;
  LayoutRequest request_;
  const Profile nothing_;
  CostBook book_;
  CostBook::Asked asked_;
};

}  // namespace

StatusOr<std::vector<Need>> NeedsOfSteps(const ModelConfig& model, const Cluster& cluster) {
  return StepNeeds(model, cluster).Run();
}

}  // namespace moeplan::planner
