// A profile: everything measured about one cluster, as cost models under keys, and the look-up that planning uses.
//
// Keys follow contract and design.md §3: a group is its (size, ranks per node). Values only; reading a const Profile
// from several threads is safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/cost/cost_model.h"
#include "models/status.h"
#include "models/workload/groups.h"
#include "models/workload/workload.h"

namespace moeplan {

// kAllToAllAllGather is Parm's SAA: the second all-to-all with the gather over MP inside it.
enum class Collective { kAllToAll, kAllGather, kReduceScatter, kAllReduce, kAllToAllAllGather };
enum class AllToAllAlgorithm { kDirect, kHier1d, kHier2d, kPipe };  // And own ones.
template <>
inline constexpr int kBuiltIn<AllToAllAlgorithm> = 4;
// What else runs at the same time.
enum class Contention { kNone, kWithCopy, kWithAllGather, kWithAllToAll, kWithExpertGemm };
// And those of own codecs and experts.
enum class Kernel {
  kDeviceCopy,
  kExpertGemm,
  kGate,
  kPermute,
  kEncodeFp16,
  kEncodeBf16,
  kEncodeFp8,
  kEncodeInt8,
  kEncodeZfp,
  kDecodeFp16,
  kDecodeBf16,
  kDecodeFp8,
  kDecodeInt8,
  kDecodeZfp,
  kExpertInputGradient,
  kExpertWeightGradient,
};
template <>
inline constexpr int kBuiltIn<Kernel> = 16;

// The names of the contract, such as "ALL_TO_ALL".
std::string_view Name(Collective collective);
std::string_view Name(AllToAllAlgorithm algorithm);
std::string_view Name(Contention contention);
std::string_view Name(Kernel kernel);

// The kernels of a codec. Requires one.
Kernel EncodeKernel(Codec codec);
Kernel DecodeKernel(Codec codec);
// The codec of such a kernel; kNone for others.
Codec CodecOf(Kernel kernel);

// The kernel that computes a product (EXPERT_GEMM, EXPERT_INPUT_GRADIENT or EXPERT_WEIGHT_GRADIENT, built in) of
// experts of that kind. And back: the kind of a kernel's experts, FFN for what is of no expert, and the built-in kernel
// that an own one is like, itself for a built-in one.
Kernel KernelOf(ExpertKind kind, Kernel product);
ExpertKind ExpertKindOf(Kernel kernel);
Kernel BuiltInLike(Kernel kernel);

// The kernels of an own codec or expert, named after it. For RegisterCodec and RegisterExpert (models/extension).
void AddKernelsOf(Codec codec);
void AddKernelsOf(ExpertKind kind);

// φ(n): the share of the `size` column that crosses a link of each rank.
double BusFactor(Collective collective, int group_size);

// Kernels whose size is flops, the matrix products of experts; all others count bytes.
bool CountsFlops(Kernel kernel);

struct CollectiveKey {
  Collective collective = Collective::kAllToAll;
  AllToAllAlgorithm algorithm = AllToAllAlgorithm::kDirect;
  GroupShape group;
  int gather_group_size = 0;  // N_MP, of kAllToAllAllGather alone.
  int shards = 0;             // N_ESP, likewise.
  Contention contention = Contention::kNone;
  std::optional<int> bytes_per_element;  // Absent: any.

  friend auto operator<=>(const CollectiveKey&, const CollectiveKey&) = default;
};

struct KernelKey {
  Kernel kernel = Kernel::kDeviceCopy;
  Contention contention = Contention::kNone;
  std::optional<int> bytes_per_element;  // Absent: any.
  std::optional<int> model_dim;
  std::optional<int> hidden_dim;

  friend auto operator<=>(const KernelKey&, const KernelKey&) = default;
};

// "ALL_TO_ALL groupSize 2 ranksPerNode 1", for messages.
std::string Describe(const CollectiveKey& key);
std::string Describe(const KernelKey& key);

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

  friend bool operator==(const Profile&, const Profile&) = default;
};

// The model that answers for `key`, or null. An exact contention wins over kNone, then more matching optional fields
// over fewer; a model with an optional field set to another value than the key's never matches.
const CostModel* Find(const Profile& profile, const CollectiveKey& key);
const CostModel* Find(const Profile& profile, const KernelKey& key);

// Whether an entry with exactly this contention exists (no falling back to kNone).
const CostModel* FindContended(const Profile& profile, const CollectiveKey& key);
const CostModel* FindContended(const Profile& profile, const KernelKey& key);

struct PricedTime {
  double time_s = 0;
  double low_s = 0;  // 90 % interval.
  double high_s = 0;
  bool extrapolated = false;  // Asked outside the measured range.
};

// The time of `size` under `model`.
PricedTime Price(const CostModel& model, double size, double bus_factor);

// Checks the group of a key, and that gather_group_size and shards stand with kAllToAllAllGather alone.
Status ValidateCollectiveKey(const CollectiveKey& key, const std::string& path);

// Checks every curve, cluster and group shape, and that no key stands twice.
Status ValidateProfile(const Profile& profile);

}  // namespace moeplan
