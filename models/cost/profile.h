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

// Whether it is a collective that runs beside.
inline bool IsCommunication(Contention contention) {
  return contention == Contention::kWithAllToAll || contention == Contention::kWithAllGather;
}

// φ(n): the share of the `size` column that crosses a link of each rank.
double BusFactor(Collective collective, int group_size);

// Kernels whose size is flops, the matrix products of experts; all others count bytes.
bool CountsFlops(Kernel kernel);

// The most CTAs (thread blocks, each of which takes an SM) that a library may be told to give to a collective: fewer
// slow the collective and leave more of the GPU to compute. 0 stands for the library's own choice.
inline constexpr int kMostCtas = 1024;

struct CollectiveKey {
  Collective collective = Collective::kAllToAll;
  AllToAllAlgorithm algorithm = AllToAllAlgorithm::kDirect;
  GroupShape group;
  int gather_group_size = 0;  // N_MP, of kAllToAllAllGather alone.
  int shards = 0;             // N_ESP, likewise.
  Contention contention = Contention::kNone;
  std::optional<int> bytes_per_element;  // Absent: any.
  int ctas = 0;                          // That it was limited to, and any collective beside it.

  friend auto operator<=>(const CollectiveKey&, const CollectiveKey&) = default;
};

struct KernelKey {
  Kernel kernel = Kernel::kDeviceCopy;
  Contention contention = Contention::kNone;
  std::optional<int> bytes_per_element;  // Absent: any.
  std::optional<int> model_dim;
  std::optional<int> hidden_dim;
  int ctas = 0;  // That the communication beside it was limited to; of kWithAllToAll and kWithAllGather alone.

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
// over fewer; a model with an optional field set to another value than the key's never matches. A collective of limited
// CTAs is answered for by what was measured with that limit alone. A kernel beside limited communication is also
// answered for by what was measured beside unlimited one, which slows it at least as much.
const CostModel* Find(const Profile& profile, const CollectiveKey& key);
const CostModel* Find(const Profile& profile, const KernelKey& key);

// Whether an entry with exactly this contention and these CTAs exists (no falling back).
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

// Whether `ctas` is a limit, or 0.
Status ValidateCtas(int ctas, const std::string& path);

// Checks the group of a key, its CTAs, and that gather_group_size and shards stand with kAllToAllAllGather alone.
Status ValidateCollectiveKey(const CollectiveKey& key, const std::string& path);

// Checks that CTAs stand with communication beside the kernel alone.
Status ValidateKernelKey(const KernelKey& key, const std::string& path);

// Checks every key, curve and the cluster, and that no key stands twice.
Status ValidateProfile(const Profile& profile);

}  // namespace moeplan
