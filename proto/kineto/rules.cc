#include "proto/kineto/rules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <string>

namespace moeplan::kineto {
namespace {

enum class Match { kWhole, kPart };

// The first row that fits counts. Texts are in lower case, without namespace, "Backward0" and leading underscores.
struct Rule {
  Match match;
  std::string_view text;
  InstructionOp op;
  std::string_view evidence;
};

using enum InstructionOp;
using enum Match;

constexpr std::string_view kAten = "PyTorch, aten/src/ATen/native/native_functions.yaml";
constexpr std::string_view kMegatron = "Megatron-LM, megatron/core (fusions, tensor_parallel, transformer/moe)";
constexpr std::string_view kTransformerEngine =
    "TransformerEngine, transformer_engine/pytorch (module, permutation, router)";
constexpr std::string_view kFlash = "flash-attention, flash_attn/flash_attn_interface.py";
constexpr std::string_view kGroupedGemm = "grouped_gemm, grouped_gemm/ops.py";

constexpr Rule kOperators[] = {
    {kPart, "scaled_dot_product", kAttention, kAten},
    {kPart, "flash_attention", kAttention, kAten},
    {kPart, "efficient_attention", kAttention, kAten},
    {kPart, "flashattn", kAttention, kFlash},
    {kPart, "flash_attn", kAttention, kFlash},
    {kPart, "fusedattn", kAttention, kTransformerEngine},
    {kPart, "fused_attn", kAttention, kTransformerEngine},
    {kPart, "dotproductattention", kAttention, kTransformerEngine},
    {kPart, "groupedlinear", kExpert, kTransformerEngine},
    {kPart, "grouped_mm", kExpert, kAten},
    {kPart, "groupedgemm", kExpert, kGroupedGemm},
    {kPart, "grouped_gemm", kExpert, kGroupedGemm},
    {kWhole, "gmm", kExpert, kGroupedGemm},
    {kPart, "unpermute", kCombine, kTransformerEngine},
    {kPart, "moe_permute", kDispatch, kTransformerEngine},
    {kPart, "moepermute", kDispatch, kTransformerEngine},
    {kPart, "permute_and_pad", kDispatch, kTransformerEngine},
    {kPart, "fusedtopk", kGate, kTransformerEngine},
    {kPart, "fused_topk", kGate, kTransformerEngine},
    {kWhole, "topk", kGate, kAten},
    {kPart, "layernormlinear", kMatmul, kTransformerEngine},
    {kPart, "layernormmlp", kMatmul, kTransformerEngine},
    {kPart, "layer_norm", kLayerNorm, kAten},
    {kPart, "layernorm", kLayerNorm, kAten},
    {kPart, "rms_norm", kLayerNorm, kAten},
    {kPart, "rmsnorm", kLayerNorm, kTransformerEngine},
    {kPart, "softmax", kSoftmax, kAten},
    {kPart, "linear", kMatmul, kAten},
    {kPart, "matmul", kMatmul, kAten},
    {kWhole, "mm", kMatmul, kAten},
    {kWhole, "addmm", kMatmul, kAten},
    {kWhole, "bmm", kMatmul, kAten},
    {kWhole, "baddbmm", kMatmul, kAten},
    {kWhole, "scaled_mm", kMatmul, kAten},
    {kWhole, "add", kElementwise, kAten},
    {kWhole, "add_", kElementwise, kAten},
    {kWhole, "sub", kElementwise, kAten},
    {kWhole, "mul", kElementwise, kAten},
    {kWhole, "mul_", kElementwise, kAten},
    {kWhole, "div", kElementwise, kAten},
    {kWhole, "div_", kElementwise, kAten},
    {kWhole, "neg", kElementwise, kAten},
    {kWhole, "exp", kElementwise, kAten},
    {kWhole, "pow", kElementwise, kAten},
    {kWhole, "sqrt", kElementwise, kAten},
    {kWhole, "rsqrt", kElementwise, kAten},
    {kWhole, "tanh", kElementwise, kAten},
    {kWhole, "sigmoid", kElementwise, kAten},
    {kWhole, "relu", kElementwise, kAten},
    {kWhole, "threshold", kElementwise, kAten},
    {kWhole, "silu", kElementwise, kAten},
    {kWhole, "gelu", kElementwise, kAten},
    {kWhole, "dropout", kElementwise, kAten},
    {kWhole, "native_dropout", kElementwise, kAten},
    {kWhole, "where", kElementwise, kAten},
    {kWhole, "masked_fill", kElementwise, kAten},
    {kWhole, "copy_", kElementwise, kAten},
    {kWhole, "clone", kElementwise, kAten},
    {kWhole, "contiguous", kElementwise, kAten},
    {kWhole, "to", kElementwise, kAten},
    {kWhole, "reshape", kElementwise, kAten},
    {kWhole, "flatten", kElementwise, kAten},
    {kWhole, "to_copy", kElementwise, kAten},
    {kWhole, "tocopy", kElementwise, kAten},
    {kPart, "swiglu", kElementwise, kMegatron},
    {kPart, "bias_gelu", kElementwise, kMegatron},
    {kPart, "biasgelu", kElementwise, kMegatron},
    {kPart, "bias_dropout", kElementwise, kMegatron},
    {kPart, "rotary", kElementwise, kMegatron},
    {kPart, "fusedrope", kElementwise, kTransformerEngine},
    // Known, and nothing that could be cut along samples.
    {kPart, "embedding", kOther, kAten},
    {kPart, "index", kOther, kAten},
    {kPart, "scatter", kOther, kAten},
    {kPart, "gather", kOther, kAten},
    {kPart, "sort", kOther, kAten},
    {kPart, "cross_entropy", kOther, kAten},
    {kPart, "crossentropy", kOther, kMegatron},
    {kPart, "nll_loss", kOther, kAten},
    {kPart, "nllloss", kOther, kAten},
    {kPart, "accumulategrad", kOther, "PyTorch, torch/csrc/autograd/functions/accumulate_grad.h"},
    {kWhole, "sum", kOther, kAten},
    {kWhole, "mean", kOther, kAten},
    {kWhole, "cumsum", kOther, kAten},
    {kWhole, "cat", kOther, kAten},
    {kWhole, "stack", kOther, kAten},
    {kWhole, "split", kOther, kAten},
    {kWhole, "chunk", kOther, kAten},
    {kWhole, "select", kOther, kAten},
    {kWhole, "slice", kOther, kAten},
    {kWhole, "unbind", kOther, kAten},
    {kWhole, "one_hot", kOther, kAten},
    {kWhole, "arange", kOther, kAten},
    {kWhole, "triu", kOther, kAten},
    {kWhole, "zero_", kOther, kAten},
    {kWhole, "fill_", kOther, kAten},
    {kWhole, "zeros", kOther, kAten},
    {kWhole, "ones", kOther, kAten},
    {kWhole, "nonzero", kOther, kAten},
    {kWhole, "item", kOther, kAten},
    {kPart, "moe_chunk_sort", kOther, kTransformerEngine},
    {kPart, "foreach", kOther, kAten},
};

constexpr Rule kKernels[] = {
    {kPart, "flash", kAttention, kFlash},
    {kPart, "fmha", kAttention, kTransformerEngine},
    {kPart, "unpermute", kCombine, kTransformerEngine},
    {kPart, "permute_kernel", kDispatch, kTransformerEngine},
    {kPart, "topk", kGate, kAten},
    {kPart, "grouped_gemm", kExpert, kGroupedGemm},
    {kPart, "group_gemm", kExpert, kGroupedGemm},
    {kPart, "gemm", kMatmul, "cuBLAS and CUTLASS, names of kernels"},
    {kPart, "nvjet", kMatmul, "cuBLAS, names of kernels"},
    {kPart, "cutlass", kMatmul, "CUTLASS, names of kernels"},
    {kPart, "layer_norm", kLayerNorm, kAten},
    {kPart, "rmsnorm", kLayerNorm, kTransformerEngine},
    {kPart, "softmax", kSoftmax, kAten},
    {kPart, "multi_tensor_apply", kOther, kAten},
    {kPart, "elementwise", kElementwise, "PyTorch, aten/src/ATen/native/cuda/Loops.cuh"},
    {kPart, "triton_poi", kElementwise, "PyTorch, torch/_inductor/codegen/triton.py (poi: pointwise)"},
    {kPart, "triton_", kOther, "PyTorch, torch/_inductor/codegen/triton.py (red, per: reductions)"},
    {kPart, "memcpy", kOther, "pytorch/kineto, libkineto/src/CuptiActivity.cpp"},
    {kPart, "memset", kOther, "pytorch/kineto, libkineto/src/CuptiActivity.cpp"},
};

constexpr std::string_view kWords = "words of MoE layers, as this project and Megatron-LM use them";
constexpr Rule kAnnotations[] = {
    {kWhole, "router", kGate, kWords},       {kWhole, "gate", kGate, kWords},
    {kWhole, "dispatch", kDispatch, kWords}, {kWhole, "permute", kDispatch, kWords},
    {kWhole, "combine", kCombine, kWords},   {kWhole, "unpermute", kCombine, kWords},
    {kWhole, "experts", kExpert, kWords},
};

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

std::optional<InstructionOp> Find(std::span<const Rule> rules, std::string_view text) {
  for (const Rule& rule : rules) {
    if (rule.match == Match::kWhole ? text == rule.text : text.find(rule.text) != std::string_view::npos)
      return rule.op;
  }
  return std::nullopt;
}

bool IsOneOf(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

bool HasOneOf(std::string_view name, std::span<const std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

}  // namespace

std::string_view WithoutNamespace(std::string_view name) {
  if (const size_t colon = name.rfind("::"); colon != std::string_view::npos && name.find('<') > colon) {
    name.remove_prefix(colon + 2);
  }
  std::string_view stem = name;
  while (!stem.empty() && std::isdigit(static_cast<unsigned char>(stem.back()))) stem.remove_suffix(1);
  if (stem.size() > 8 && stem.ends_with("Backward")) return stem.substr(0, stem.size() - 8);
  return name;
}

std::optional<InstructionOp> OpOfOperator(std::string_view name) {
  std::string text = Lower(WithoutNamespace(name));
  text.erase(0, text.find_first_not_of('_'));
  if (text.ends_with("_backward")) text.resize(text.size() - 9);
  return Find(kOperators, text);
}

std::optional<InstructionOp> OpOfKernel(std::string_view name) { return Find(kKernels, Lower(name)); }

std::optional<InstructionOp> OpOfAnnotation(std::string_view name) {
  const size_t at = name.find_last_of(".:/");
  return Find(kAnnotations, Lower(at == std::string_view::npos ? name : name.substr(at + 1)));
}

std::optional<Collective> CollectiveNamed(std::string_view name) {
  std::string text = Lower(name);
  std::erase(text, '_');
  if (text.find("alltoall") != std::string::npos) return Collective::kAllToAll;
  if (text.find("reducescatter") != std::string::npos) return Collective::kReduceScatter;
  if (text.find("allgather") != std::string::npos) return Collective::kAllGather;
  if (text.find("allreduce") != std::string::npos) return Collective::kAllReduce;
  // The kernels of DeepEP exchange rows; they have neither sizes nor a group in a trace.
  if (text.find("deepep::") != std::string::npos && text.find("notify") == std::string::npos &&
      text.find("layout") == std::string::npos) {
    return Collective::kAllToAll;
  }
  return std::nullopt;
}

bool Communicates(std::string_view name) {
  return name.starts_with("nccl") || name.starts_with("gloo:") || name.find("deep_ep::") != std::string_view::npos;
}

bool IsOwnThreads(std::string_view name) {
  static constexpr std::string_view kBackends[] = {"gloo:", "nccl:", "mpi:", "ucc:"};
  return std::ranges::any_of(kBackends, [&](std::string_view backend) { return name.starts_with(backend); });
}

bool IsKernelLike(std::string_view name) {
  static constexpr std::string_view kOthers[] = {
      "autograd::", "torch::autograd", "c10d::", "torch.distributed", "c10d_functional::", "_c10d_functional::"};
  if (std::ranges::any_of(kOthers, [&](std::string_view other) { return name.starts_with(other); })) return false;
  return name.find("::") != std::string_view::npos || name == "detach" || name.starts_with("triton_");
}

bool IsView(std::string_view name) {
  static constexpr std::string_view kViews[] = {"t",
                                                "transpose",
                                                "view",
                                                "_unsafe_view",
                                                "as_strided",
                                                "expand",
                                                "permute",
                                                "unsqueeze",
                                                "squeeze",
                                                "select",
                                                "slice",
                                                "narrow",
                                                "unbind",
                                                "detach",
                                                "alias",
                                                "reshape_as",
                                                "view_as",
                                                "split",
                                                "chunk",
                                                "tensor_split",
                                                "unflatten",
                                                "expand_as",
                                                "empty",
                                                "empty_like",
                                                "empty_strided",
                                                "new_empty",
                                                "resolve_conj",
                                                "resolve_neg",
                                                "set_",
                                                "resize_",
                                                "lift_fresh",
                                                "result_type",
                                                "can_cast",
                                                "is_nonzero",
                                                "detach_",
                                                "_local_scalar_dense",
                                                "size",
                                                "stride",
                                                "movedim",
                                                "numpy_T"};
  return IsOneOf(WithoutNamespace(name), kViews);
}

bool HandsOn(std::string_view node) {
  static constexpr std::string_view kNodes[] = {"T",       "Transpose", "View",  "UnsafeView", "Permute",     "ToCopy",
                                                "Squeeze", "Unsqueeze", "Alias", "Detach",     "ReshapeAlias"};
  return IsOneOf(WithoutNamespace(node), kNodes);
}

bool IsContainer(std::string_view name) {
  static constexpr std::string_view kParts[] = {
      "Checkpoint",      "Torch-Compiled Region",   "CompiledFunction",
      "CompiledFxGraph", "DistributedDataParallel", "FullyShardedDataParallel",
      "FSDP::"};
  return HasOneOf(name, kParts);
}

bool IsProduct(std::string_view name) {
  static constexpr std::string_view kProducts[] = {"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm",
                                                   "aten::matmul"};
  return IsOneOf(name, kProducts);
}

bool IsOwnLinear(std::string_view function) {
  // Megatron-LM, megatron/core/tensor_parallel/layers.py.
  static constexpr std::string_view kFunctions[] = {"LinearWithGradAccumulationAndAsyncCommunication"};
  return IsOneOf(WithoutNamespace(function), kFunctions);
}

bool HidesWeightGradients(std::string_view node) {
  // TransformerEngine, transformer_engine/pytorch/module; PyTorch, torch/_functorch.
  static constexpr std::string_view kParts[] = {"_Linear",          "LayerNormLinear", "LayerNormMLP", "GroupedLinear",
                                                "CompiledFunction", "GroupedGemm",     "GroupedMm"};
  return HasOneOf(node, kParts);
}

double ElementBytes(std::string_view type) {
  if (const size_t colon = type.rfind("::"); colon != std::string_view::npos) type.remove_prefix(colon + 2);
  const std::string name = Lower(type);
  if (name.starts_with("float8") || name == "byte" || name == "char" || name == "bool") return 1;
  if (name == "unsigned char" || name == "signed char" || name == "uint8" || name == "int8") return 1;
  if (name == "bfloat16" || name == "half" || name == "short" || name == "float16" || name == "short int") return 2;
  if (name == "float" || name == "int" || name == "float32" || name == "int32") return 4;
  if (name == "double" || name == "long" || name == "long int" || name == "int64" || name == "float64") return 8;
  return 0;
}

}  // namespace moeplan::kineto
