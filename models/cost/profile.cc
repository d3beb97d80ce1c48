#include "models/cost/profile.h"

#include <algorithm>
#include <array>
#include <set>

#include "models/check.h"
#include "models/text.h"

namespace moeplan {

std::string_view Name(Collective collective) {
  switch (collective) {
    case Collective::kAllToAll: return "ALL_TO_ALL";
    case Collective::kAllGather: return "ALL_GATHER";
    case Collective::kReduceScatter: return "REDUCE_SCATTER";
    case Collective::kAllReduce: return "ALL_REDUCE";
    case Collective::kAllToAllAllGather: return "ALL_TO_ALL_ALL_GATHER";
  }
  return "?";
}

std::string_view Name(AllToAllAlgorithm algorithm) {
  switch (algorithm) {
    case AllToAllAlgorithm::kDirect: return "DIRECT";
    case AllToAllAlgorithm::kHier1d: return "HIER_1D";
    case AllToAllAlgorithm::kHier2d: return "HIER_2D";
    case AllToAllAlgorithm::kPipe: return "PIPE";
  }
  return OwnNames<AllToAllAlgorithm>::NameOf(algorithm);
}

std::string_view Name(Contention contention) {
  switch (contention) {
    case Contention::kNone: return "NONE";
    case Contention::kWithCopy: return "WITH_COPY";
    case Contention::kWithAllGather: return "WITH_ALL_GATHER";
    case Contention::kWithAllToAll: return "WITH_ALL_TO_ALL";
    case Contention::kWithExpertGemm: return "WITH_EXPERT_GEMM";
  }
  return "?";
}

std::string_view Name(Kernel kernel) {
  switch (kernel) {
    case Kernel::kDeviceCopy: return "DEVICE_COPY";
    case Kernel::kExpertGemm: return "EXPERT_GEMM";
    case Kernel::kGate: return "GATE";
    case Kernel::kPermute: return "PERMUTE";
    case Kernel::kEncodeFp16: return "ENCODE_FP16";
    case Kernel::kEncodeBf16: return "ENCODE_BF16";
    case Kernel::kEncodeFp8: return "ENCODE_FP8";
    case Kernel::kEncodeInt8: return "ENCODE_INT8";
    case Kernel::kEncodeZfp: return "ENCODE_ZFP";
    case Kernel::kDecodeFp16: return "DECODE_FP16";
    case Kernel::kDecodeBf16: return "DECODE_BF16";
    case Kernel::kDecodeFp8: return "DECODE_FP8";
    case Kernel::kDecodeInt8: return "DECODE_INT8";
    case Kernel::kDecodeZfp: return "DECODE_ZFP";
    case Kernel::kExpertInputGradient: return "EXPERT_INPUT_GRADIENT";
    case Kernel::kExpertWeightGradient: return "EXPERT_WEIGHT_GRADIENT";
  }
  return OwnNames<Kernel>::NameOf(kernel);
}

namespace {
// In the order of Codec, kNone aside.
constexpr Kernel kEncodeKernels[] = {Kernel::kEncodeFp16, Kernel::kEncodeBf16, Kernel::kEncodeFp8, Kernel::kEncodeInt8,
                                     Kernel::kEncodeZfp};
constexpr Kernel kDecodeKernels[] = {Kernel::kDecodeFp16, Kernel::kDecodeBf16, Kernel::kDecodeFp8, Kernel::kDecodeInt8,
                                     Kernel::kDecodeZfp};
constexpr Kernel kProducts[] = {Kernel::kExpertGemm, Kernel::kExpertInputGradient, Kernel::kExpertWeightGradient};

// Of the own kernels, codecs and experts, by the index of each.
struct OwnKernels {
  std::vector<std::pair<Kernel, ExpertKind>> built_in_like;
  std::vector<std::pair<Kernel, Kernel>> of_codec;
  std::vector<std::array<Kernel, 3>> of_expert;

  Kernel Add(std::string name, Kernel built_in, ExpertKind kind = ExpertKind::kFfn) {
    MOEPLAN_CHECK(!NamedValue<Kernel>(name));
    built_in_like.emplace_back(built_in, kind);
    return OwnNames<Kernel>::Add(std::move(name));
  }
};
OwnKernels& Own() {
  static OwnKernels own;
  return own;
}
}  // namespace

void AddKernelsOf(Codec codec) {
  const Kernel encode = Own().Add(StrCat("ENCODE_", Name(codec)), Kernel::kEncodeInt8);
  const Kernel decode = Own().Add(StrCat("DECODE_", Name(codec)), Kernel::kDecodeInt8);
  Own().of_codec.emplace_back(encode, decode);
}

void AddKernelsOf(ExpertKind kind) {
  auto& kernels = Own().of_expert.emplace_back();
  for (size_t i = 0; i < std::size(kProducts); ++i) {
    kernels[i] = Own().Add(StrCat(Name(kProducts[i]), "_", Name(kind)), kProducts[i], kind);
  }
}

Kernel KernelOf(ExpertKind kind, Kernel product) {
  const int own = OwnNames<ExpertKind>::IndexOf(kind);
  if (own < 0) return product;
  const auto* const found = std::ranges::find(kProducts, product);
  MOEPLAN_CHECK(found != std::end(kProducts));
  return Own().of_expert[own][found - std::begin(kProducts)];
}

ExpertKind ExpertKindOf(Kernel kernel) {
  const int own = OwnNames<Kernel>::IndexOf(kernel);
  return own < 0 ? ExpertKind::kFfn : Own().built_in_like[own].second;
}

Kernel BuiltInLike(Kernel kernel) {
  const int own = OwnNames<Kernel>::IndexOf(kernel);
  return own < 0 ? kernel : Own().built_in_like[own].first;
}

Kernel EncodeKernel(Codec codec) {
  MOEPLAN_CHECK(codec != Codec::kNone);
  if (const int own = OwnNames<Codec>::IndexOf(codec); own >= 0) return Own().of_codec[own].first;
  return kEncodeKernels[static_cast<size_t>(codec) - 1];
}

Kernel DecodeKernel(Codec codec) {
  MOEPLAN_CHECK(codec != Codec::kNone);
  if (const int own = OwnNames<Codec>::IndexOf(codec); own >= 0) return Own().of_codec[own].second;
  return kDecodeKernels[static_cast<size_t>(codec) - 1];
}

Codec CodecOf(Kernel kernel) {
  for (int value = 1; value < kBuiltIn<Codec> + OwnNames<Codec>::count(); ++value) {
    const auto codec = static_cast<Codec>(value);
    if (EncodeKernel(codec) == kernel || DecodeKernel(codec) == kernel) return codec;
  }
  return Codec::kNone;
}

double BusFactor(Collective collective, int group_size) {
  const double share = (group_size - 1.0) / group_size;
  return collective == Collective::kAllReduce ? 2 * share : share;
}

bool CountsFlops(Kernel kernel) { return std::ranges::find(kProducts, BuiltInLike(kernel)) != std::end(kProducts); }

std::string Describe(const CollectiveKey& key) {
  std::string text =
      StrCat(Name(key.collective), " groupSize ", key.group.size, " ranksPerNode ", key.group.ranks_per_node);
  if (key.algorithm != AllToAllAlgorithm::kDirect) text += StrCat(" algorithm ", Name(key.algorithm));
  if (key.collective == Collective::kAllToAllAllGather) {
    text += StrCat(" gatherGroupSize ", key.gather_group_size, " shards ", key.shards);
  }
  if (key.contention != Contention::kNone) text += StrCat(" contention ", Name(key.contention));
  if (key.bytes_per_element) text += StrCat(" bytesPerElement ", *key.bytes_per_element);
  if (key.ctas != 0) text += StrCat(" ctas ", key.ctas);
  return text;
}

std::string Describe(const KernelKey& key) {
  std::string text(Name(key.kernel));
  if (key.contention != Contention::kNone) text += StrCat(" contention ", Name(key.contention));
  if (key.bytes_per_element) text += StrCat(" bytesPerElement ", *key.bytes_per_element);
  if (key.model_dim) text += StrCat(" modelDim ", *key.model_dim);
  if (key.hidden_dim) text += StrCat(" hiddenDim ", *key.hidden_dim);
  if (key.ctas != 0) text += StrCat(" ctas ", key.ctas);
  return text;
}

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
      entry.shards != wanted.shards || entry.ctas != wanted.ctas) {
    return kNoMatch;
  }
  return MatchOptional(entry.bytes_per_element, wanted.bytes_per_element);
}

int Match(const KernelKey& entry, const KernelKey& wanted) {
  if (entry.kernel != wanted.kernel || entry.contention != wanted.contention || entry.ctas != wanted.ctas) {
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

PricedTime Price(const CostModel& model, double size, double bus_factor) {
  PricedTime price;
  price.time_s = TimeS(model.curve, size, bus_factor);
  price.low_s = price.time_s * (model.fit ? model.fit->interval_low_ratio : 1);
  price.high_s = price.time_s * (model.fit ? model.fit->interval_high_ratio : 1);
  price.extrapolated = size < model.size_low || size > model.size_high;
  return price;
}

Status ValidateCtas(int ctas, const std::string& path) {
  if (0 <= ctas && ctas <= kMostCtas) return OkStatus();
  return InvalidInput(StrCat(path, ": found ", ctas, ", expected 0 to ", kMostCtas));
}

Status ValidateCollectiveKey(const CollectiveKey& key, const std::string& path) {
  RETURN_IF_ERROR(ValidateCtas(key.ctas, path + ".ctas"));
  if (key.group.size < 1)
    return InvalidInput(StrCat(path, ".groupSize: found ", key.group.size, ", expected at least 1"));
  if (key.group.ranks_per_node < 1 || key.group.ranks_per_node > key.group.size) {
    return InvalidInput(StrCat(path, ".ranksPerNode: found ", key.group.ranks_per_node,
                               ", expected 1 to groupSize, which is ", key.group.size));
  }
  const bool gathers = key.collective == Collective::kAllToAllAllGather;
  if (gathers && (key.gather_group_size < 1 || key.shards < 1)) {
    return InvalidInput(StrCat(path, ": found gatherGroupSize ", key.gather_group_size, " and shards ", key.shards,
                               ", expected both at least 1 for ALL_TO_ALL_ALL_GATHER"));
  }
  if (!gathers && (key.gather_group_size != 0 || key.shards != 0)) {
    return InvalidInput(
        StrCat(path, ": found gatherGroupSize or shards, expected them for ALL_TO_ALL_ALL_GATHER alone"));
  }
  return OkStatus();
}

Status ValidateKernelKey(const KernelKey& key, const std::string& path) {
  RETURN_IF_ERROR(ValidateCtas(key.ctas, path + ".ctas"));
  if (key.ctas == 0 || IsCommunication(key.contention)) return OkStatus();
  return InvalidInput(StrCat(path, ".ctas: found ", key.ctas, " with contention ", Name(key.contention),
                             ", expected 0, or WITH_ALL_TO_ALL or WITH_ALL_GATHER, which it limits"));
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
