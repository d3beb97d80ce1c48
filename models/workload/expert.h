// What stands between the matrices of an expert.
//
// An expert is h = f(x·up, x·gate_up), y = h·down, where an expert of two matrices has no gate_up; its hidden columns
// are cut over the ranks of an ESP group, so that f takes each column by itself. FFN is GELU(up), exact, by
// erf; with three matrices up · SiLU(gate_up).
#pragma once

#include <cstddef>
#include <string>

#include "models/workload/workload.h"

namespace moeplan {

// f and its slopes over n columns of floats, for kernels, and of one column in double precision, to check those.
// From any thread.
struct ExpertFunction {
  // hidden[i] = f(up[i], gate_up[i]); may be `up` itself. With two matrices gate_up is null, here and below.
  void (*hidden)(const float* up, const float* gate_up, float* hidden, size_t n) = nullptr;
  // Replaces up[i] and gate_up[i] by their gradients, given that of f(up[i], gate_up[i]).
  void (*gradients)(const float* hidden_gradient, float* up, float* gate_up, size_t n) = nullptr;
  double (*value)(double up, double gate_up) = nullptr;
  double (*up_slope)(double up, double gate_up) = nullptr;
  double (*gate_up_slope)(double up, double gate_up) = nullptr;
};

// The ExpertFunction of a type such as
//
//   struct Relu {
//     static constexpr int kMatrices = 2;
//     template <typename T> static T Hidden(T up, T) { return up > 0 ? up : 0; }
//     template <typename T> static T UpSlope(T up, T) { return up > 0 ? 1 : 0; }
//     template <typename T> static T GateUpSlope(T, T) { return 0; }
//   };
template <typename F>
ExpertFunction ExpertFunctionOf() {
  constexpr bool kGated = F::kMatrices == 3;
  return {.hidden =
              [](const float* up, const float* gate_up, float* hidden, size_t n) {
                for (size_t i = 0; i < n; ++i) hidden[i] = F::Hidden(up[i], kGated ? gate_up[i] : 0.0F);
              },
          .gradients =
              [](const float* hidden_gradient, float* up, float* gate_up, size_t n) {
                for (size_t i = 0; i < n; ++i) {
                  const float u = up[i], g = kGated ? gate_up[i] : 0.0F;
                  up[i] = hidden_gradient[i] * F::UpSlope(u, g);
                  if (kGated) gate_up[i] = hidden_gradient[i] * F::GateUpSlope(u, g);
                }
              },
          .value = [](double up, double gate_up) { return F::Hidden(up, gate_up); },
          .up_slope = [](double up, double gate_up) { return F::UpSlope(up, gate_up); },
          .gate_up_slope = [](double up, double gate_up) { return F::GateUpSlope(up, gate_up); }};
}

// That of the layer's experts, and of its shared one.
ExpertFunction FunctionOf(const Layer& layer);

// A kind of expert that a program adds.
struct OwnExpert {
  std::string name;
  int matrices = 2;  // Or 3; what layer.expertMatrices must say.
  ExpertFunction function;
};
// kInvalidInput for a name that is none or is taken, for other numbers of matrices, and for a function that is missing.
StatusOr<ExpertKind> AddExpert(OwnExpert expert);
// Requires a kind that was added.
const OwnExpert& OwnExpertOf(ExpertKind kind);

}  // namespace moeplan
