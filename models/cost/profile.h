// A profile: everything measured about one cluster, as cost models under keys, and the lookup that planning uses.
//
// Values only; reading a const Profile from several threads is safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/cost/cost_model.h"
#include "models/cost/operation.h"
#include "models/cost/roofline.h"
#include "models/status.h"

namespace moeplan {

struct CollectiveModel {
  CollectiveKey key;
  CostModel model;

  friend bool operator==(const CollectiveModel&, const CollectiveModel&) = default;
};

struct KernelModel {
  KernelKey key;
  CostModel model;

  friend bool operator==(const KernelModel&, const KernelModel&) = default;
};

struct Profile {
  std::string name;
  int version = 0;         // 0: from a file.
  std::string created_at;  // RFC 3339, empty from a file.
  Cluster cluster;
  std::vector<CollectiveModel> collectives;
  std::vector<KernelModel> kernels;
  // What answers for linear layers and attention of which there are no entries; never stored, of named hardware alone.
  std::optional<Roofline> roofline;

  friend bool operator==(const Profile&, const Profile&) = default;
};

// The model that answers for `key`, or null. An exact contention wins over kNone, then more matching optional fields
// over fewer; a model with an optional field set to another value than the key's never matches. A collective of limited
// CTAs is answered for by what was measured with that limit alone. A kernel beside limited communication is also
// answered for by what was measured beside unlimited one, which slows it at least as much.
const CostModel* Find(const Profile& profile, const CollectiveKey& key);
const CostModel* Find(const Profile& profile, const KernelKey& key);

// Whether an entry with exactly this contention and these CTAs exists (no falling back).
const CostModel* FindContended(const Profile& profile, const CollectiveKey& key);
const CostModel* FindContended(const Profile& profile, const KernelKey& key);

// Adds what `other` has and `profile` has not: entries under keys of which it has none, the roofline, what the cluster
// does not say of a GPU and, where no collective was measured, for want of a second rank, its nodes and GPUs.
void CompleteFrom(const Profile& other, Profile& profile);

struct PricedTime {
  double time_s = 0;
  double low_s = 0;  // 90 % interval.
  double high_s = 0;
  bool extrapolated = false;  // Asked outside the measured range.
};

// The time of `size` under `model`.
PricedTime Price(const CostModel& model, double size, double bus_factor);

// Checks every key, curve and the cluster, and that no key stands twice.
Status ValidateProfile(const Profile& profile);

}  // namespace moeplan
