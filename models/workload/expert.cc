#include "models/workload/expert.h"

#include "models/check.h"
#include "models/registry.h"
#include "models/workload/expert_functions.h"

namespace moeplan {
namespace {

Registry<OwnExpert>& OwnExperts() {
  static Registry<OwnExpert> own;
  return own;
}

#if defined(__x86_64__) && defined(__GNUC__)
// The same loops for processors with AVX2 and FMA: what we ship runs on all, and most have them.
template <typename F>
[[gnu::target("avx2,fma")]] void WideHidden(const float* up, const float* gate_up, float* hidden, size_t n) {
  ComputeHidden<F>(up, gate_up, hidden, n);
}
template <typename F>
[[gnu::target("avx2,fma")]] void WideGradients(const float* hidden_gradient, float* up, float* gate_up, size_t n) {
  ComputeGradients<F>(hidden_gradient, up, gate_up, n);
}
template <typename F>
ExpertFunction ShippedFunctionOf() {
  ExpertFunction function = ExpertFunctionOf<F>();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return function;
  function.hidden = WideHidden<F>;
  function.gradients = WideGradients<F>;
  return function;
}
#else
template <typename F>
ExpertFunction ShippedFunctionOf() {
  return ExpertFunctionOf<F>();
}
#endif

}  // namespace

StatusOr<ExpertKind> AddExpert(OwnExpert expert) {
  const auto& [hidden, gradients, value, up_slope, gate_up_slope] = expert.function;
  if (!hidden || !gradients || !value || !up_slope || !gate_up_slope) {
    return InvalidInput(StrCat("expert ", expert.name, ": found a function that is null, expected all five"));
  }
  if (expert.matrices != 2 && expert.matrices != 3) {
    return InvalidInput(StrCat("expert ", expert.name, ": found ", expert.matrices, " matrices, expected 2 or 3"));
  }
  ASSIGN_OR_RETURN(const ExpertKind added, AddOwnName<ExpertKind>(expert.name, "expert"));
  OwnExperts().Add(std::move(expert));
  return added;
}

const OwnExpert& OwnExpertOf(ExpertKind kind) {
  MOEPLAN_CHECK(OwnNames<ExpertKind>::IndexOf(kind) >= 0);
  return OwnExperts().At(OwnNames<ExpertKind>::IndexOf(kind));
}

ExpertFunction FunctionOf(const Layer& layer) {
  if (layer.expert_kind != ExpertKind::kFfn) return OwnExpertOf(layer.expert_kind).function;
  if (layer.swiglu_limit > 0) return ShippedFunctionOf<GptOssSwiGlu>();
  return layer.expert_matrices == SwiGlu::kMatrices ? ShippedFunctionOf<SwiGlu>() : ShippedFunctionOf<Gelu>();
}

std::string_view Name(ExpertKind kind) { return kind == ExpertKind::kFfn ? "FFN" : OwnNames<ExpertKind>::NameOf(kind); }

}  // namespace moeplan
