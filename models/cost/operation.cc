#include "models/cost/operation.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <utility>
#include <vector>

#include "models/check.h"
#include "models/registry.h"
#include "models/text.h"

namespace moeplan {

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
    case Kernel::kLinear: return "LINEAR";
    case Kernel::kLinearInputGradient: return "LINEAR_INPUT_GRADIENT";
    case Kernel::kLinearWeightGradient: return "LINEAR_WEIGHT_GRADIENT";
    case Kernel::kAttention: return "ATTENTION";
    case Kernel::kAttentionGradient: return "ATTENTION_GRADIENT";
    case Kernel::kNorm: return "NORM";
    case Kernel::kRotary: return "ROTARY";
    case Kernel::kActivation: return "ACTIVATION";
    case Kernel::kResidual: return "RESIDUAL";
    case Kernel::kEmbedding: return "EMBEDDING";
    case Kernel::kCrossEntropy: return "CROSS_ENTROPY";
    case Kernel::kOptimizer: return "OPTIMIZER";
    case Kernel::kHostLaunch: return "HOST_LAUNCH";
    case Kernel::kEncodeFp8Blockwise: return "ENCODE_FP8_BLOCKWISE";
    case Kernel::kDecodeFp8Blockwise: return "DECODE_FP8_BLOCKWISE";
  }
  return OwnNames<Kernel>::NameOf(kernel);
}

namespace {
// Both in the order of the codecs behind Codec::kNone.
constexpr Kernel kEncodeKernels[] = {Kernel::kEncodeFp16, Kernel::kEncodeBf16, Kernel::kEncodeFp8,
                                     Kernel::kEncodeInt8, Kernel::kEncodeZfp,  Kernel::kEncodeFp8Blockwise};
constexpr Kernel kDecodeKernels[] = {Kernel::kDecodeFp16, Kernel::kDecodeBf16, Kernel::kDecodeFp8,
                                     Kernel::kDecodeInt8, Kernel::kDecodeZfp,  Kernel::kDecodeFp8Blockwise};
constexpr Kernel kProducts[] = {Kernel::kExpertGemm, Kernel::kExpertInputGradient, Kernel::kExpertWeightGradient};

// The kernels of registered codecs and experts, looked up by the number that each got when it was registered.
struct OwnKernels {
  Registry<std::pair<Kernel, ExpertKind>> built_in_like;
  Registry<std::pair<Kernel, Kernel>> of_codec;
  Registry<std::array<Kernel, 3>> of_expert;

  Kernel Add(std::string name, Kernel built_in, ExpertKind kind = ExpertKind::kFfn) {
    MOEPLAN_CHECK(!NamedValue<Kernel>(name));
    built_in_like.Add({built_in, kind});
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
  Own().of_codec.Add({encode, decode});
}

void AddKernelsOf(ExpertKind kind) {
  std::array<Kernel, 3> kernels;
  for (size_t i = 0; i < std::size(kProducts); ++i) {
    kernels[i] = Own().Add(StrCat(Name(kProducts[i]), "_", Name(kind)), kProducts[i], kind);
  }
  Own().of_expert.Add(kernels);
}

Kernel KernelOf(ExpertKind kind, Kernel product) {
  const int own = OwnNames<ExpertKind>::IndexOf(kind);
  if (own < 0) return product;
  const auto* const found = std::ranges::find(kProducts, product);
  MOEPLAN_CHECK(found != std::end(kProducts));
  return Own().of_expert.At(own)[found - std::begin(kProducts)];
}

ExpertKind ExpertKindOf(Kernel kernel) {
  const int own = OwnNames<Kernel>::IndexOf(kernel);
  return own < 0 ? ExpertKind::kFfn : Own().built_in_like.At(own).second;
}

Kernel BuiltInLike(Kernel kernel) {
  const int own = OwnNames<Kernel>::IndexOf(kernel);
  return own < 0 ? kernel : Own().built_in_like.At(own).first;
}

Kernel EncodeKernel(Codec codec) {
  MOEPLAN_CHECK(codec != Codec::kNone);
  if (const int own = OwnNames<Codec>::IndexOf(codec); own >= 0) return Own().of_codec.At(own).first;
  return kEncodeKernels[static_cast<size_t>(codec) - 1];
}

Kernel DecodeKernel(Codec codec) {
  MOEPLAN_CHECK(codec != Codec::kNone);
  if (const int own = OwnNames<Codec>::IndexOf(codec); own >= 0) return Own().of_codec.At(own).second;
  return kDecodeKernels[static_cast<size_t>(codec) - 1];
}

Codec CodecOf(Kernel kernel) {
  for (int value = 1; value < kBuiltIn<Codec> + OwnNames<Codec>::count(); ++value) {
    const auto codec = static_cast<Codec>(value);
    if (EncodeKernel(codec) == kernel || DecodeKernel(codec) == kernel) return codec;
  }
  return Codec::kNone;
}

bool IsExpertProduct(Kernel kernel) { return std::ranges::find(kProducts, BuiltInLike(kernel)) != std::end(kProducts); }

bool IsLinear(Kernel kernel) {
  return kernel == Kernel::kLinear || kernel == Kernel::kLinearInputGradient || kernel == Kernel::kLinearWeightGradient;
}

bool IsAttention(Kernel kernel) { return kernel == Kernel::kAttention || kernel == Kernel::kAttentionGradient; }

bool CountsFlops(Kernel kernel) { return IsExpertProduct(kernel) || IsLinear(kernel) || IsAttention(kernel); }

bool IsOfTheRestOfAStep(Kernel kernel) { return kernel >= Kernel::kLinear && kernel <= Kernel::kHostLaunch; }

std::span<const KernelShapeField> KernelShapeFields() {
  static constexpr KernelShapeField kFields[] = {
      {"inFeatures", &KernelShape::in_features}, {"outFeatures", &KernelShape::out_features},
      {"experts", &KernelShape::experts},        {"heads", &KernelShape::heads},
      {"kvHeads", &KernelShape::kv_heads},       {"queryKeyDim", &KernelShape::query_key_dim},
      {"valueDim", &KernelShape::value_dim},     {"sequence", &KernelShape::sequence},
      {"window", &KernelShape::window}};
  return kFields;
}

double AttentionFlops(const KernelShape& shape) {
  const double sequence = shape.sequence, window = shape.window > 0 ? shape.window : shape.sequence;
  const double pairs = 2 * sequence * window - window * window;
  return 2 * pairs * shape.heads * (shape.query_key_dim + shape.value_dim);
}

namespace {
// Of a linear layer, then of attention.
constexpr size_t kLinearFields = 3;

std::span<const KernelShapeField> FieldsOf(Kernel kernel) {
  if (IsLinear(kernel)) return KernelShapeFields().first(kLinearFields);
  if (IsAttention(kernel)) return KernelShapeFields().subspan(kLinearFields);
  return {};
}
}  // namespace

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
  if (key.stride != 0) text += StrCat(" stride ", key.stride);
  if (key.dispatcher != Dispatcher::kAllToAll) text += StrCat(" dispatcher ", Name(key.dispatcher));
  if (key.transport != Transport::kNccl) text += StrCat(" transport ", Name(key.transport));
  return text;
}

std::string Describe(const KernelKey& key) {
  std::string text(Name(key.kernel));
  if (key.contention != Contention::kNone) text += StrCat(" contention ", Name(key.contention));
  if (key.bytes_per_element) text += StrCat(" bytesPerElement ", *key.bytes_per_element);
  if (key.model_dim) text += StrCat(" modelDim ", *key.model_dim);
  if (key.hidden_dim) text += StrCat(" hiddenDim ", *key.hidden_dim);
  for (const auto& [name, value] : KernelShapeFields()) {
    if (key.shape.*value != 0) text += StrCat(" ", name, " ", key.shape.*value);
  }
  if (key.ctas != 0) text += StrCat(" ctas ", key.ctas);
  return text;
}

namespace {

CollectiveKey EssentialOf(CollectiveKey key) {
  key.bytes_per_element.reset();
  return key;
}

KernelKey EssentialOf(KernelKey key) {
  if (IsExpertProduct(key.kernel)) return key;
  key.hidden_dim.reset();
  if (IsLinear(key.kernel) || IsAttention(key.kernel)) return (key.model_dim.reset(), key);
  if (key.kernel == Kernel::kGate || key.kernel == Kernel::kPermute || CodecOf(key.kernel) != Codec::kNone) return key;
  key.bytes_per_element.reset();
  key.model_dim.reset();
  return key;
}

}  // namespace

CostKey Essential(const CostKey& key) {
  return std::visit([](const auto& one) -> CostKey { return EssentialOf(one); }, key);
}

Contention ContentionOf(const CostKey& key) {
  return std::visit([](const auto& one) { return one.contention; }, key);
}

int CtasOf(const CostKey& key) {
  return std::visit([](const auto& one) { return one.ctas; }, key);
}

CostKey WithContention(CostKey key, Contention contention, int ctas_beside) {
  std::visit([&](auto& one) { one.contention = contention; }, key);
  if (auto* kernel = std::get_if<KernelKey>(&key)) kernel->ctas = IsCommunication(contention) ? ctas_beside : 0;
  return key;
}

CostKey WithoutCtas(CostKey key) {
  std::visit([](auto& one) { one.ctas = 0; }, key);
  return key;
}

std::string Describe(const CostKey& key) {
  return std::visit([](const auto& one) { return Describe(one); }, key);
}

namespace {

// "NAME value NAME value ..." behind the operation's own name; absent where a name has no value.
std::optional<std::vector<std::pair<std::string, std::string>>> FieldsOf(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> fields;
  std::istringstream words{std::string(text)};
  for (std::string name, value; words >> name; fields.emplace_back(name, value)) {
    if (!(words >> value)) return std::nullopt;
  }
  return fields;
}

std::optional<int> WholeNumber(const std::string& text) {
  int number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool SetField(const std::string& name, const std::string& value, CollectiveKey& key) {
  if (name == "algorithm") {
    const auto algorithm = NamedValue<AllToAllAlgorithm>(value);
    key.algorithm = algorithm.value_or(AllToAllAlgorithm::kDirect);
    return algorithm.has_value();
  }
  if (name == "dispatcher") {
    const auto dispatcher = NamedValue<Dispatcher>(value);
    key.dispatcher = dispatcher.value_or(Dispatcher::kAllToAll);
    return dispatcher.has_value();
  }
  if (name == "transport") {
    const auto transport = NamedValue<Transport>(value);
    key.transport = transport.value_or(Transport::kNccl);
    return transport.has_value();
  }
  const std::optional<int> number = WholeNumber(value);
  if (!number) return false;
  if (name == "groupSize") return (key.group.size = *number, true);
  if (name == "ranksPerNode") return (key.group.ranks_per_node = *number, true);
  if (name == "gatherGroupSize") return (key.gather_group_size = *number, true);
  if (name == "shards") return (key.shards = *number, true);
  if (name == "stride") return (key.stride = *number, true);
  return false;
}

bool SetField(const std::string& name, const std::string& value, KernelKey& key) {
  const std::optional<int> number = WholeNumber(value);
  if (name == "modelDim") key.model_dim = number;
  if (name == "hiddenDim") key.hidden_dim = number;
  if (number && (name == "modelDim" || name == "hiddenDim")) return true;
  for (const auto& [field, place] : KernelShapeFields()) {
    if (number && name == field) return (key.shape.*place = *number, true);
  }
  return false;
}

template <typename Key>
std::optional<CostKey> WithFields(Key key, std::string_view text) {
  const auto fields = FieldsOf(text);
  if (!fields) return std::nullopt;
  for (const auto& [name, value] : *fields) {
    const std::optional<int> number = WholeNumber(value);
    if (name == "contention") {
      const auto contention = NamedValue<Contention>(value);
      if (!contention) return std::nullopt;
      key.contention = *contention;
    } else if (name == "bytesPerElement" && number) {
      key.bytes_per_element = number;
    } else if (name == "ctas" && number) {
      key.ctas = *number;
    } else if (!SetField(name, value, key)) {
      return std::nullopt;
    }
  }
  return key;
}

}  // namespace

std::optional<CostKey> NamedCost(std::string_view text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string name(text.substr(0, end));
  std::optional<CostKey> key;
  if (const auto collective = NamedValue<Collective>(name)) {
    key = WithFields(CollectiveKey{.collective = *collective}, text.substr(end));
  } else if (const auto kernel = NamedValue<Kernel>(name)) {
    key = WithFields(KernelKey{.kernel = *kernel}, text.substr(end));
  }
  // Whatever is missing, twice or in another order: there is one text for a key.
  if (!key || Describe(*key) != text) return std::nullopt;
  return key;
}

std::string_view UnitOf(const CostKey& key) {
  const auto* kernel = std::get_if<KernelKey>(&key);
  if (kernel == nullptr) return "bytes";
  if (kernel->kernel == Kernel::kHostLaunch) return "launches";
  return CountsFlops(kernel->kernel) ? "flops" : "bytes";
}

double BusFactorOf(const CostKey& key) {
  const auto* collective = std::get_if<CollectiveKey>(&key);
  return collective == nullptr ? 1 : BusFactor(collective->collective, collective->group.size);
}

Status ValidateCollectiveKey(const CollectiveKey& key, const std::string& path) {
  RETURN_IF_ERROR(ValidateCtas(key.ctas, path + ".ctas"));
  if (key.group.size < 1)
    return InvalidInput(StrCat(path, ".groupSize: found ", key.group.size, ", expected at least 1"));
  if (key.group.ranks_per_node < 1 || key.group.ranks_per_node > key.group.size) {
    return InvalidInput(StrCat(path, ".ranksPerNode: found ", key.group.ranks_per_node,
                               ", expected 1 to groupSize, which is ", key.group.size));
  }
  if (key.stride < 0) return InvalidInput(StrCat(path, ".stride: found ", key.stride, ", expected at least 0"));
  const bool gathers = key.collective == Collective::kAllToAllAllGather;
  if (gathers && (key.gather_group_size < 1 || key.shards < 1)) {
    return InvalidInput(StrCat(path, ": found gatherGroupSize ", key.gather_group_size, " and shards ", key.shards,
                               ", expected both at least 1 for ALL_TO_ALL_ALL_GATHER"));
  }
  if (!gathers && (key.gather_group_size != 0 || key.shards != 0)) {
    return InvalidInput(
        StrCat(path, ": found gatherGroupSize or shards, expected them for ALL_TO_ALL_ALL_GATHER alone"));
  }
  if (key.dispatcher == Dispatcher::kAllToAll) {
    if (key.transport == Transport::kNccl) return OkStatus();
    return InvalidInput(
        StrCat(path, ".transport: found ", Name(key.transport), " without a dispatcher, expected DEEPEP or HYBRID_EP"));
  }
  if (!SendsOnceToANode(key.dispatcher) || key.collective != Collective::kAllToAll ||
      key.algorithm != AllToAllAlgorithm::kDirect) {
    return InvalidInput(StrCat(path, ".dispatcher: found ", Name(key.dispatcher), " of ", Name(key.collective), " ",
                               Name(key.algorithm), ", expected DEEPEP or HYBRID_EP of ALL_TO_ALL DIRECT"));
  }
  return OkStatus();
}

namespace {
Status ValidateShape(const KernelKey& key, const std::string& path) {
  const auto expected = FieldsOf(key.kernel);
  for (const KernelShapeField& field : KernelShapeFields()) {
    const int found = key.shape.*field.value;
    const bool belongs =
        std::ranges::any_of(expected, [&](const KernelShapeField& one) { return one.value == field.value; });
    const bool optional = field.value == &KernelShape::window;
    if (belongs && optional && (found < 0 || found >= key.shape.sequence)) {
      return InvalidInput(StrCat(path, ".shape.", field.name, ": found ", found, ", expected 0 to ",
                                 key.shape.sequence - 1, ", less than the sequence"));
    }
    if (belongs && !optional && found < 1) {
      return InvalidInput(
          StrCat(path, ".shape.", field.name, ": found ", found, ", expected at least 1 for ", Name(key.kernel)));
    }
    if (!belongs && found != 0) {
      return InvalidInput(StrCat(path, ".shape.", field.name, ": found ", found, " for ", Name(key.kernel),
                                 ", expected it for a linear layer or attention alone"));
    }
  }
  return OkStatus();
}
}  // namespace

Status ValidateKernelKey(const KernelKey& key, const std::string& path) {
  RETURN_IF_ERROR(ValidateShape(key, path));
  RETURN_IF_ERROR(ValidateCtas(key.ctas, path + ".ctas"));
  if (key.ctas == 0 || IsCommunication(key.contention)) return OkStatus();
  return InvalidInput(StrCat(path, ".ctas: found ", key.ctas, " with contention ", Name(key.contention),
                             ", expected 0, or WITH_ALL_TO_ALL or WITH_ALL_GATHER, which it limits"));
}

}  // namespace moeplan
