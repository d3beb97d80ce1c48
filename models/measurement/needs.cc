#include "models/measurement/needs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "models/check.h"
#include "models/measurement/candidates.h"
#include "models/measurement/cost_key.h"
#include "models/routing/expert_load.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "models/timeline/task_cost.h"
#include "models/workload/codec.h"

namespace moeplan {
namespace {

constexpr double kContendedShare = 0.25;
constexpr double kComputeBesideShare = 0.05;

bool IsKernel(const CostKey& key, Kernel kernel) {
  const auto* found = std::get_if<KernelKey>(&key);
  return found && BuiltInLike(found->kernel) == kernel;
}

// The operations whose slowdown under others is worth measuring: the gate and permutations are too short to matter, and
// what is like one of these is taken to be slowed down like it (Pricer::Slowdown).
bool WorthContending(const CostKey& key) {
  if (const auto* collective = std::get_if<CollectiveKey>(&key)) {
    return collective->algorithm == AllToAllAlgorithm::kDirect;
  }
  return IsKernel(key, Kernel::kExpertGemm) || IsKernel(key, Kernel::kDeviceCopy);
}

// Collects what is asked and how often.
class NeedList {
 public:
  explicit NeedList(const Cluster& cluster) : cluster_(cluster) {}

  // One use of an operation at a size, which is `share` of what it would weigh alone.
  void Add(const CostKey& key, double size, double share = 1) {
    if (size <= 0) return;
    weights_[{Essential(key), size}] += share * NominalS(key, size, cluster_);
  }
  void AddContended(const CostKey& key, Contention contention, double size, double share) {
    Add(WithContention(key, contention), size, share);
  }

  std::vector<Need> Needs() const {
    std::vector<Need> needs;
    for (const auto& [asked, weight] : weights_) needs.push_back({asked.first, asked.second, weight});
    return needs;
  }

 private:
  const Cluster& cluster_;
  std::map<std::pair<CostKey, double>, double> weights_;
};

// Compute beside communication, which training jobs overlap even where no schedule of a layer does.
void AddComputeBeside(const TaskCost& cost, NeedList& list) {
  if (std::holds_alternative<CollectiveKey>(cost.key)) {
    list.AddContended(cost.key, Contention::kWithExpertGemm, cost.size, kComputeBesideShare);
  } else if (IsKernel(cost.key, Kernel::kExpertGemm)) {
    list.AddContended(cost.key, Contention::kWithAllToAll, cost.size, kComputeBesideShare);
    list.AddContended(cost.key, Contention::kWithAllGather, cost.size, kComputeBesideShare);
  }
}

bool IsDirect(const CostKey& key) {
  const auto* collective = std::get_if<CollectiveKey>(&key);
  return collective == nullptr || collective->algorithm == AllToAllAlgorithm::kDirect;
}

// Of a graph with another algorithm than DIRECT only that counts: the rest has been asked by the same graph with
// DIRECT, and shall not weigh more for each algorithm there is.
void AddGraph(const TaskGraph& graph, AllToAllAlgorithm algorithm, NeedList& list) {
  const std::vector<ContentionSet> beside = PossibleContention(graph);
  for (size_t i = 0; i < graph.tasks.size(); ++i) {
    const auto cost = CostOf(graph.tasks[i], graph);
    if (!cost || (algorithm != AllToAllAlgorithm::kDirect && IsDirect(cost->key))) continue;
    list.Add(cost->key, cost->size);
    if (!WorthContending(cost->key)) continue;
    for (int kind = 0; kind < kContentions; ++kind) {
      if (!beside[i].test(kind)) continue;
      list.AddContended(cost->key, static_cast<Contention>(kind), cost->size, kContendedShare);
    }
    if (IsDirect(cost->key)) AddComputeBeside(*cost, list);
  }
}

void AddCandidates(const Workload& workload, const Cluster& cluster, NeedList& list) {
  for (const Family family : Families()) {
    if (!FamilyAllowed(family, workload, cluster).ok()) continue;
    for (const Knobs& plain : VariantsOf(family, workload.layout, cluster.gpus_per_node)) {
      for (const Knobs& variant : WithCodecs(plain, workload)) {
        // Each of two codecs asks as much with itself on the other way, where any may be on both.
        const bool differ = variant.dispatch_codec != variant.combine_codec;
        const bool each_way_has_its_own =
            workload.named_codecs_only && workload.dispatch_codec != workload.combine_codec;
        if (differ && !plain.overlapped_gather && !each_way_has_its_own) continue;
        const int most = MaxPieces(family, workload);
        // Of the many variants the ends will do: curves are smooth in between.
        const bool plainest = variant.all_to_all == AllToAllAlgorithm::kDirect && variant == plain;
        const std::vector<int> ends = most == 1 ? std::vector{1} : std::vector{1, most};
        for (const int pieces : plainest ? PowersOfTwo(most) : ends) {
          const auto graph = BuildSchedule(WithPieces(variant, pieces), workload, cluster);
          if (graph.ok()) AddGraph(PartOf(*graph, workload.phase), variant.all_to_all, list);
        }
      }
    }
  }
}

// What a rule looks up over one group; nothing over a group of one rank.
class RuleNeeds {
 public:
  RuleNeeds(const Workload& workload, const Cluster& cluster, NeedList& list)
      : workload_(workload), gpus_per_node_(cluster.gpus_per_node), list_(list) {}

  void Ask(Collective collective, Group group, double bytes, Contention contention = Contention::kNone) {
    const CollectiveKey key = KeyOf(collective, group, workload_.layout, gpus_per_node_);
    if (key.group.size > 1) list_.AddContended(key, contention, bytes, ShareOf(contention));
  }
  void AskKernel(Kernel kernel, double size, Contention contention = Contention::kNone) {
    const KernelKey key = KeyOf(kernel, workload_.layer, workload_.layout);
    list_.AddContended(key, contention, size, ShareOf(contention));
  }

 private:
  static double ShareOf(Contention contention) { return contention == Contention::kNone ? 1 : kContendedShare; }

  const Workload& workload_;
  int gpus_per_node_;
  NeedList& list_;
};

// The look-ups of planner/rules/parm.cc.
void AddParm(const Workload& workload, RuleNeeds ask) {
  const LayerSizes sizes = SizesOf(workload.layer, workload.layout);
  const Layout& layout = workload.layout;
  const double x = sizes.input_bytes, y = sizes.dispatched_bytes * layout.expert_sharding_parallel;
  ask.Ask(Collective::kAllGather, Group::kShard, layout.expert_sharding_parallel * x);
  ask.Ask(Collective::kAllReduce, Group::kShard, y);
  ask.Ask(Collective::kAllToAll, Group::kExpert, y);
  ask.Ask(Collective::kAllToAll, Group::kExpertShard, y / layout.tensor_parallel);
  ask.Ask(Collective::kAllGather, Group::kTensor, x);
  ask.Ask(Collective::kAllGather, Group::kTensor, sizes.dispatched_bytes);
  if (layout.tensor_parallel > 1) {
    ask.Ask(Collective::kAllToAllAllGather, Group::kExpertShard, y / layout.tensor_parallel);
  }
}

// The look-ups of planner/rules/monta.cc, at chunk counts in powers of two.
void AddMonta(const Workload& workload, RuleNeeds ask) {
  const double I = SizesOf(workload.layer, workload.layout).input_bytes;
  const int t = workload.layout.tensor_parallel;
  ask.Ask(Collective::kAllToAll, Group::kExpert, I);
  ask.Ask(Collective::kAllToAll, Group::kExpert, I / t);
  ask.Ask(Collective::kAllGather, Group::kTensor, I);
  for (const int N : PowersOfTwo(workload.max_chunks)) {
    if (I / N / t < workload.min_chunk_bytes) break;
    ask.Ask(Collective::kAllToAll, Group::kExpert, I / N / t);
    for (const Contention contention : {Contention::kNone, Contention::kWithCopy}) {
      ask.Ask(Collective::kAllGather, Group::kTensor, I / N, contention);
    }
    for (const Contention contention : {Contention::kNone, Contention::kWithAllGather}) {
      ask.AskKernel(Kernel::kDeviceCopy, I / N, contention);
    }
  }
}

// The look-ups of planner/rules/schemoe.cc, at partition degrees in powers of two.
void AddSchemoe(const Workload& workload, RuleNeeds ask) {
  const Layer& layer = workload.layer;
  const double S = SizesOf(layer, workload.layout).dispatched_bytes;
  const double flops = ExpertFlops(layer, /*shards=*/1, S / layer.bytes_per_element / layer.model_dim);
  for (const int r : PowersOfTwo(workload.max_partition_degree)) {
    ask.AskKernel(Kernel::kExpertGemm, flops / r);
    for (const Codec codec : {workload.dispatch_codec, workload.combine_codec}) {
      const double ratio = CompressionRatio(codec, layer.model_dim, layer.bytes_per_element);
      ask.Ask(Collective::kAllToAll, Group::kExpert, S / r * ratio);
      if (codec == Codec::kNone) continue;
      ask.AskKernel(EncodeKernel(codec), S / r);
      ask.AskKernel(DecodeKernel(codec), S / r);
    }
  }
}

// ---- Layouts without a workload.

constexpr int kDefaultDim = 1024;

std::vector<int> Divisors(int number) {
  std::vector<int> divisors;
  for (int i = 1; i <= number; ++i) {
    if (number % i == 0) divisors.push_back(i);
  }
  return divisors;
}

Workload DefaultWorkload(const Cluster& cluster, int tensor, int shards) {
  const int experts = Ranks(cluster) / shards;
  Workload workload;
  workload.name = StrCat("tp", tensor, "-esp", shards, "-ep", experts);
  workload.layer = {.batch = 1,
                    .sequence_length = 4096,
                    .model_dim = kDefaultDim,
                    .hidden_dim = kDefaultDim,
                    .experts = experts,
                    .top_k = std::min(2, experts),
                    .capacity_factor = 1.0};
  workload.layout = {.tensor_parallel = tensor, .expert_parallel = experts, .expert_sharding_parallel = shards};
  workload.min_chunk_bytes = 1;  // So that chunked schedules ask for what they need, whatever the layout.
  workload.max_chunks = 2;
  return workload;
}

CostKey ForAnyLayer(const CostKey& key) {
  CostKey any = key;
  if (auto* kernel = std::get_if<KernelKey>(&any)) {
    kernel->bytes_per_element.reset();
    kernel->model_dim.reset();
    kernel->hidden_dim.reset();
  }
  return any;
}

// The weight of each key that some default layout needs, over all sizes.
std::map<CostKey, double> WeightsByKey(const Cluster& cluster) {
  std::map<CostKey, double> weights;
  for (const Need& need : NeedsOf(DefaultWorkloads(cluster), cluster)) weights[ForAnyLayer(need.key)] += need.weight;
  return weights;
}

std::vector<double> PowersOfFour(double low, double high) {
  std::vector<double> sizes;
  for (double size = low; size < high; size *= 4) sizes.push_back(size);
  sizes.push_back(high);
  return sizes;
}

std::vector<double> GridOf(const CostKey& key, const Cluster& cluster, double low_bytes, double high_bytes) {
  const SizeRange range = PlannedSizes(key, cluster, low_bytes, high_bytes);
  return PowersOfFour(range.low, range.high);
}

// In which round of halving the i-th of `count` points is met: 0 for both ends, 1 for the middle, ...
int RoundOf(int i, int count) {
  int first = 0, last = count - 1, round = 0;
  while (i != first && i != last) {
    const int middle = first + (last - first) / 2;
    (i <= middle ? last : first) = middle;
    ++round;
  }
  return round;
}

bool HeavierFirst(const Need& a, const Need& b) { return a.weight > b.weight; }

// Slices of gradients, from the whole to what chunks may be: where they run, experts and all-to-alls may, too.
void AddGradients(const Workload& workload, const Cluster& cluster, NeedList& list) {
  constexpr double kSmallestShare = 1.0 / 1024;
  const CollectiveKey key =
      KeyOf(Collective::kAllReduce, Group::kDenseReplicas, workload.layout, cluster.gpus_per_node);
  const double whole = workload.gradient_bytes, least = std::max(workload.min_chunk_bytes, whole * kSmallestShare);
  if (key.group.size == 1) return;
  for (double bytes = whole; bytes > 0 && (bytes == whole || bytes >= least); bytes /= 2) {
    list.Add(key, bytes);
    for (const Contention contention : {Contention::kWithExpertGemm, Contention::kWithAllToAll}) {
      list.AddContended(key, contention, bytes, kContendedShare);
    }
  }
}

}  // namespace

double NominalS(const CostKey& key, double size, const Cluster& cluster) {
  constexpr double kStartS = 1e-5, kInterNodePerS = 1e10, kIntraNodePerS = 1e11, kMemoryPerS = 1e12, kFlopsPerS = 1e14;
  if (const auto* collective = std::get_if<CollectiveKey>(&key)) {
    const bool inside = collective->group.ranks_per_node == collective->group.size;
    return kStartS + size / (inside ? kIntraNodePerS : kInterNodePerS);
  }
  if (!CountsFlops(std::get<KernelKey>(key).kernel)) return kStartS + size / kMemoryPerS;
  return kStartS + size / (cluster.peak_flops_per_s > 0 ? cluster.peak_flops_per_s : kFlopsPerS);
}

std::vector<Need> NeedsOf(const std::vector<Workload>& resolved, const Cluster& cluster) {
  NeedList list(cluster);
  for (const Workload& one : resolved) {
    AddCandidates(WithExpectedSlots(one), cluster, list);
    const RuleNeeds ask(one, cluster, list);  // Rules take f = 1 where nothing is dropped.
    AddParm(one, ask);
    AddMonta(one, ask);
    AddSchemoe(one, ask);
    AddGradients(one, cluster, list);
  }
  return list.Needs();
}

bool IsKernelOf(const KernelKey& key, const Workload& resolved) {
  const auto covers = [&](const KernelKey& own) {
    return key.kernel == own.kernel && (!key.bytes_per_element || key.bytes_per_element == own.bytes_per_element) &&
           (!key.model_dim || key.model_dim == own.model_dim) && (!key.hidden_dim || key.hidden_dim == own.hidden_dim);
  };
  return covers(KeyOf(key.kernel, resolved.layer, resolved.layout)) ||
         (CountsFlops(key.kernel) && resolved.layer.shared_hidden_dim > 0 &&
          covers(SharedExpertKey(key.kernel, resolved.layer, resolved.layout)));
}

std::vector<Workload> DefaultWorkloads(const Cluster& cluster) {
  std::vector<Workload> workloads;
  for (const int tensor : Divisors(cluster.gpus_per_node)) {
    for (const int shards : Divisors(cluster.gpus_per_node)) {
      const auto resolved = ResolveWorkload(DefaultWorkload(cluster, tensor, shards), cluster);
      if (resolved.ok()) workloads.push_back(*resolved);
    }
  }
  return workloads;
}

SizeRange PlannedSizes(const CostKey& key, const Cluster& cluster, double low_bytes, double high_bytes) {
  if (UnitOf(key) == "bytes") return {.low = low_bytes, .high = high_bytes};
  constexpr double kLongestS = 0.02, kMostFlops = 1.7e10;
  constexpr double kFlopsPerByte = 2.0 * 2 * kDefaultDim / 2;  // 2 · matrices · H flops a row element, of two bytes.
  const double most = cluster.peak_flops_per_s > 0 ? kLongestS * cluster.peak_flops_per_s : kMostFlops;
  const double low = low_bytes * kFlopsPerByte;
  return {.low = low, .high = std::max(low, std::min(most, high_bytes * kFlopsPerByte))};
}

std::vector<Need> NeedsOfLayouts(const Cluster& cluster, double low_bytes, double high_bytes) {
  MOEPLAN_CHECK(0 < low_bytes && low_bytes <= high_bytes);
  std::vector<KeySizes> keys;
  for (const auto& [key, weight] : WeightsByKey(cluster)) {
    keys.push_back({.key = key,
                    .sizes = GridOf(key, cluster, low_bytes, high_bytes),
                    .weight = weight,
                    .delay = (ContentionOf(key) == Contention::kNone ? 0 : 2) + (IsDirect(key) ? 0 : 1)});
  }
  return EndsFirst(keys);
}

std::vector<Need> EndsFirst(const std::vector<KeySizes>& keys) {
  double heaviest = 0;
  for (const KeySizes& one : keys) heaviest = std::max(heaviest, one.weight);
  std::vector<Need> needs;
  for (const KeySizes& one : keys) {
    const int count = static_cast<int>(one.sizes.size());
    for (int i = 0; i < count; ++i) {
      // In (1, 2] times a power of two for each round, so that no heavy key's detail comes before a light key's ends.
      const double within_round = 1 + (heaviest > 0 ? one.weight / heaviest : 0);
      needs.push_back({one.key, one.sizes[i], std::ldexp(within_round, -(RoundOf(i, count) + one.delay))});
    }
  }
  std::stable_sort(needs.begin(), needs.end(), HeavierFirst);
  return needs;
}

std::vector<Need> MergedNeeds(const std::vector<Need>& one, const std::vector<Need>& other) {
  std::vector<Need> merged = one;
  std::set<std::pair<CostKey, double>> known;
  for (const Need& need : one) known.insert({need.key, need.size});
  for (const Need& need : other) {
    if (known.insert({need.key, need.size}).second) merged.push_back(need);
  }
  std::ranges::stable_sort(merged, std::ranges::greater(), &Need::weight);
  return merged;
}

}  // namespace moeplan
