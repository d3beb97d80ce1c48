#include "models/workload/expert.h"

#include <cmath>
#include <deque>
#include <numbers>

#include "models/check.h"

namespace moeplan {
namespace {

struct Gelu {
  static constexpr int kMatrices = 2;
  template <typename T>
  static constexpr T kInverseSqrt2 = std::numbers::sqrt2_v<T> / 2;
  template <typename T>
  static constexpr T kInverseSqrt2Pi = std::numbers::inv_sqrtpi_v<T>* kInverseSqrt2<T>;

  template <typename T>
  static T Hidden(T up, T) {
    return up * T(0.5) * (1 + std::erf(up * kInverseSqrt2<T>));
  }
  template <typename T>
  static T UpSlope(T up, T) {
    return T(0.5) * (1 + std::erf(up * kInverseSqrt2<T>)) + up * kInverseSqrt2Pi<T> * std::exp(T(-0.5) * up * up);
  }
  template <typename T>
  static T GateUpSlope(T, T) {
    return 0;
  }
};

struct SwiGlu {
  static constexpr int kMatrices = 3;
  template <typename T>
  static T Silu(T x) {
    return x / (1 + std::exp(-x));
  }
  template <typename T>
  static T Hidden(T up, T gate_up) {
    return up * Silu(gate_up);
  }
  template <typename T>
  static T UpSlope(T, T gate_up) {
    return Silu(gate_up);
  }
  template <typename T>
  static T GateUpSlope(T up, T gate_up) {
    const T sigmoid = 1 / (1 + std::exp(-gate_up));
    return up * sigmoid * (1 + gate_up * (1 - sigmoid));
  }
};

std::deque<OwnExpert>& OwnExperts() {
  static std::deque<OwnExpert> own;
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
  OwnExperts().push_back(std::move(expert));
  return added;
}

const OwnExpert& OwnExpertOf(ExpertKind kind) {
  MOEPLAN_CHECK(OwnNames<ExpertKind>::IndexOf(kind) >= 0);
  return OwnExperts().at(OwnNames<ExpertKind>::IndexOf(kind));
}

ExpertFunction FunctionOf(const Layer& layer) {
  if (layer.expert_kind != ExpertKind::kFfn) return OwnExpertOf(layer.expert_kind).function;
  return layer.expert_matrices == SwiGlu::kMatrices ? ExpertFunctionOf<SwiGlu>() : ExpertFunctionOf<Gelu>();
}

std::string_view Name(ExpertKind kind) { return kind == ExpertKind::kFfn ? "FFN" : OwnNames<ExpertKind>::NameOf(kind); }

}  // namespace moeplan
