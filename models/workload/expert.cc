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
  return layer.expert_matrices == SwiGlu::kMatrices ? ExpertFunctionOf<SwiGlu>() : ExpertFunctionOf<Gelu>();
}

std::string_view Name(ExpertKind kind) { return kind == ExpertKind::kFfn ? "FFN" : OwnNames<ExpertKind>::NameOf(kind); }

}  // namespace moeplan
