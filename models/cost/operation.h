// What can be measured and looked up: a collective over a group, or a kernel, each under a key.
//
// A change of keys changes this header; cost models and profiles under the keys are models/cost/profile.h. Keys follow
// contract and design.md §3: a group is its (size, ranks per node). Values only; any thread may call the functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "models/cost/collective.h"
#include "models/status.h"
#include "models/workload/groups.h"
#include "models/workload/workload.h"

namespace moeplan {

// The kind of task that runs beside the one that is timed.
enum class Contention { kNone, kWithCopy, kWithAllGather, kWithAllToAll, kWithExpertGemm };
// Registered codecs and experts add kernels of their own behind these.
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
  // What the rest of a training step consists of (models/step).
  kLinear,
  kLinearInputGradient,
  kLinearWeightGradient,
  kAttention,
  kAttentionGradient,
  kNorm,
  kRotary,
  kActivation,
  kResidual,
  kEmbedding,
  kCrossEntropy,
  kOptimizer,
  // What the host takes to launch kernels one after another, through the library that the job runs.
  kHostLaunch,
  // FP8_BLOCKWISE was added after the kernels above.
  kEncodeFp8Blockwise,
  kDecodeFp8Blockwise,
};
template <>
inline constexpr int kBuiltIn<Kernel> = 31;

// The names of the contract, such as "ALL_TO_ALL".
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

// Whether the task that runs beside is a collective.
inline bool IsCommunication(Contention contention) {
  return contention == Contention::kWithAllToAll || contention == Contention::kWithAllGather;
}

// Kernels whose size is flops: the matrix products of experts and of linear layers, and attention. kHostLaunch counts
// launches, in the fields that say bytes. All others count bytes: a codec's and a permutation's as KernelKey's user
// says, those of kNorm and after it what they read and write.
bool CountsFlops(Kernel kernel);
// The products of experts alone (kExpertGemm and its gradients, own kinds too).
bool IsExpertProduct(Kernel kernel);
// A product of a linear layer, forward or to a gradient; attention, either pass.
bool IsLinear(Kernel kernel);
bool IsAttention(Kernel kernel);

// kLinear to kHostLaunch: what a step has beside its MoE layers.
bool IsOfTheRestOfAStep(Kernel kernel);

// The shape of a kernel whose time is no function of its size alone. A field is 0 where the kernel has none of it.
//
// Linear layers: one sample is (rows × in_features) · (in_features × out_features) forward and the products of the same
// sizes backward, of `experts` layers of equal rows in one grouped call; the weight gradient is accumulated in FP32.
// Its size is 2·experts·rows·in_features·out_features flops, so a curve over flops is a curve over rows. Attention: one
// sample is whole sequences under a causal mask, which with a window lets a token see that many of the last alone. Its
// size is AttentionFlops of the forward pass for both passes, so a curve over flops is one over batches.
struct KernelShape {
  int in_features = 0, out_features = 0;
  int experts = 0;  // In a grouped product; 1: a plain one.
  int heads = 0, kv_heads = 0;
  int query_key_dim = 0, value_dim = 0;  // Of one head.
  int sequence = 0;
  int window = 0;  // 0: a token sees all before it. Else less than sequence.

  friend auto operator<=>(const KernelShape&, const KernelShape&) = default;
};
// The name and place of each field, in the order of messages: "inFeatures", ...
struct KernelShapeField {
  std::string_view name;
  int KernelShape::*value;
};
std::span<const KernelShapeField> KernelShapeFields();

// Flops of the forward pass of attention on one sequence: 2·heads·(query_key_dim + value_dim) for each pair of tokens,
// of which there are sequence², the half that the mask leaves out counted, or with a window twice those that it leaves.
double AttentionFlops(const KernelShape& shape);

struct CollectiveKey {
  Collective collective = Collective::kAllToAll;
  AllToAllAlgorithm algorithm = AllToAllAlgorithm::kDirect;
  GroupShape group;
  int gather_group_size = 0;  // N_MP, of kAllToAllAllGather alone.
  int shards = 0;             // N_ESP, likewise.
  Contention contention = Contention::kNone;
  std::optional<int> bytes_per_element;  // Absent: any.
  int ctas = 0;                          // That it was limited to, and any collective beside it.
  // How far apart neighbours of the group are in rank order, where that was measured: inside a node whose links are
  // shared, groups of every second rank cross them side by side. 0: any.
  int stride = 0;
  // The kernels that carried an ALL_TO_ALL, kDeepEp or kHybridEp, and their transport; no other collective has them.
  // The bytes are then those of the rows that a rank sends: a row counts once for each node that gets it or, inside a
  // node, for each rank, its own included. The time is the mean of a dispatch and a combine.
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  Transport transport = Transport::kNccl;

  friend auto operator<=>(const CollectiveKey&, const CollectiveKey&) = default;
};

struct KernelKey {
  Kernel kernel = Kernel::kDeviceCopy;
  Contention contention = Contention::kNone;
  std::optional<int> bytes_per_element;  // Absent: any.
  std::optional<int> model_dim;
  std::optional<int> hidden_dim;
  int ctas = 0;       // That the communication beside it was limited to; of kWithAllToAll and kWithAllGather alone.
  KernelShape shape;  // Of linear layers and attention alone.

  friend auto operator<=>(const KernelKey&, const KernelKey&) = default;
};

// "ALL_TO_ALL groupSize 2 ranksPerNode 1", for messages.
std::string Describe(const CollectiveKey& key);
std::string Describe(const KernelKey& key);

// What one cost is measured and looked up by.
using CostKey = std::variant<CollectiveKey, KernelKey>;

std::string Describe(const CostKey& key);

// `key` with only the fields that what it measures depends on: none of the optional ones for collectives and copies,
// element and model dimension for GATE, PERMUTE and codecs, all for EXPERT_GEMM, element and shape for linear layers
// and attention; the CTAs and the stride always. What measurements and messages use.
CostKey Essential(const CostKey& key);

Contention ContentionOf(const CostKey& key);
int CtasOf(const CostKey& key);
// Communication beside a kernel is limited to `ctas_beside`; a collective keeps its own limit.
CostKey WithContention(CostKey key, Contention contention, int ctas_beside = 0);
CostKey WithoutCtas(CostKey key);

// The key that Describe gives this text for; absent where it is no such text.
std::optional<CostKey> NamedCost(std::string_view text);

// "bytes", "flops" where CountsFlops, or "launches".
std::string_view UnitOf(const CostKey& key);

// BusFactor of a collective; 1 for a kernel.
double BusFactorOf(const CostKey& key);

// Checks the group of a key, its CTAs, that gather_group_size and shards stand with kAllToAllAllGather alone, and a
// dispatcher with a direct kAllToAll alone.
Status ValidateCollectiveKey(const CollectiveKey& key, const std::string& path);

// Checks that CTAs stand with communication beside the kernel alone, and that linear layers and attention, and only
// they, have a shape, whole.
Status ValidateKernelKey(const KernelKey& key, const std::string& path);

}  // namespace moeplan
