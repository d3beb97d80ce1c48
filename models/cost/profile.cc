#include "models/cost/profile.h"

#include <set>

#include "models/text.h"

namespace moeplan {
namespace {

constexpr int kNoMatch = -1;

// 0: the entry serves any value; 1: it was measured for this one.
int MatchOptional(const std::optional<int>& entry, const std::optional<int>& wanted) {
  if (!entry) return 0;
  return wanted && *entry == *wanted ? 1 : kNoMatch;
}

int AddUp(std::initializer_list<int> scores) {
  int sum = 0;
  for (const int score : scores) {
    if (score == kNoMatch) return kNoMatch;
    sum += score;
  }
  return sum;
}

int Match(const CollectiveKey& entry, const CollectiveKey& wanted) {
  if (entry.collective != wanted.collective || entry.group != wanted.group || entry.algorithm != wanted.algorithm ||
      entry.contention != wanted.contention || entry.gather_group_size != wanted.gather_group_size ||
      entry.shards != wanted.shards || entry.ctas != wanted.ctas || entry.dispatcher != wanted.dispatcher ||
      entry.transport != wanted.transport || (entry.stride != 0 && entry.stride != wanted.stride)) {
    return kNoMatch;
  }
  return AddUp({MatchOptional(entry.bytes_per_element, wanted.bytes_per_element), entry.stride != 0 ? 1 : 0});
}

int Match(const KernelKey& entry, const KernelKey& wanted) {
  if (entry.kernel != wanted.kernel || entry.contention != wanted.contention || entry.ctas != wanted.ctas ||
      entry.shape != wanted.shape) {
    return kNoMatch;
  }
  return AddUp({MatchOptional(entry.bytes_per_element, wanted.bytes_per_element),
                MatchOptional(entry.model_dim, wanted.model_dim), MatchOptional(entry.hidden_dim, wanted.hidden_dim)});
}

template <typename Entries, typename Key>
const CostModel* MostSpecific(const Entries& entries, const Key& wanted) {
  const CostModel* best = nullptr;
  int best_score = kNoMatch;
  for (const auto& entry : entries) {
    if (const int score = Match(entry.key, wanted); score > best_score) {
      best = &entry.model;
      best_score = score;
    }
  }
  return best;
}

template <typename Entries, typename Key>
const CostModel* MostSpecificOrUncontended(const Entries& entries, Key wanted) {
  if (const CostModel* exact = MostSpecific(entries, wanted)) return exact;
  wanted.contention = Contention::kNone;
  return MostSpecific(entries, wanted);
}

template <typename Entries>
Status CheckEntries(const Entries& entries, const std::string& path) {
  std::set<decltype(entries.front().key)> seen;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string at = StrCat(path, "[", i, "]");
    RETURN_IF_ERROR(ValidateCurve(entries[i].model.curve, at));
    if (entries[i].model.summary) RETURN_IF_ERROR(ValidateCurve(*entries[i].model.summary, at));
    if (!seen.insert(entries[i].key).second) {
      return InvalidInput(StrCat(at, ": found a second entry for ", Describe(entries[i].key), ", expected one"));
    }
  }
  return OkStatus();
}

}  // namespace

const CostModel* FindContended(const Profile& profile, const CollectiveKey& key) {
  return MostSpecific(profile.collectives, key);
}
const CostModel* FindContended(const Profile& profile, const KernelKey& key) {
  return MostSpecific(profile.kernels, key);
}
const CostModel* Find(const Profile& profile, const CollectiveKey& key) {
  return MostSpecificOrUncontended(profile.collectives, key);
}
const CostModel* Find(const Profile& profile, const KernelKey& key) {
  if (const CostModel* exact = MostSpecific(profile.kernels, key)) return exact;
  KernelKey unlimited = key;
  unlimited.ctas = 0;
  return MostSpecificOrUncontended(profile.kernels, unlimited);
}

void CompleteFrom(const Profile& other, Profile& profile) {
  Cluster& cluster = profile.cluster;
  if (profile.collectives.empty() && cluster.nodes * cluster.gpus_per_node == 1) {
    cluster.nodes = other.cluster.nodes;
    cluster.gpus_per_node = other.cluster.gpus_per_node;
  }
  std::vector<CollectiveModel> collectives;
  for (const CollectiveModel& entry : other.collectives) {
    if (Find(profile, entry.key) == nullptr) collectives.push_back(entry);
  }
  std::vector<KernelModel> kernels;
  for (const KernelModel& entry : other.kernels) {
    if (Find(profile, entry.key) == nullptr) kernels.push_back(entry);
  }
  profile.collectives.insert(profile.collectives.end(), collectives.begin(), collectives.end());
  profile.kernels.insert(profile.kernels.end(), kernels.begin(), kernels.end());
  if (!profile.roofline) profile.roofline = other.roofline;
  for (double Cluster::*const known : {&Cluster::peak_flops_per_s, &Cluster::device_memory_bytes,
                                       &Cluster::node_link_bytes_per_s, &Cluster::network_bytes_per_s}) {
    if (cluster.*known == 0) cluster.*known = other.cluster.*known;
  }
}

PricedTime Price(const CostModel& model, double size, double bus_factor) {
  PricedTime price;
  price.time_s = TimeS(model.curve, size, bus_factor);
  price.low_s = price.time_s * (model.fit ? model.fit->interval_low_ratio : 1);
  price.high_s = price.time_s * (model.fit ? model.fit->interval_high_ratio : 1);
  price.extrapolated = size < model.size_low || size > model.size_high;
  return price;
}

Status ValidateProfile(const Profile& profile) {
  RETURN_IF_ERROR(ValidateCluster(profile.cluster, "cluster"));
  for (size_t i = 0; i < profile.collectives.size(); ++i) {
    RETURN_IF_ERROR(ValidateCollectiveKey(profile.collectives[i].key, StrCat("collectives[", i, "]")));
  }
  for (size_t i = 0; i < profile.kernels.size(); ++i) {
    RETURN_IF_ERROR(ValidateKernelKey(profile.kernels[i].key, StrCat("kernels[", i, "]")));
  }
  RETURN_IF_ERROR(CheckEntries(profile.collectives, "collectives"));
  return CheckEntries(profile.kernels, "kernels");
}

}  // namespace moeplan
