// What stands between the matrices of an expert.
//
// An expert is h = f(x·up, x·gate_up), y = h·down, where an expert of two matrices has no gate_up; its hidden columns
// are cut over the ranks of an ESP group, so that f takes each column by itself. FFN is GELU(up), exact, by
// erf; with three matrices up · SiLU(gate_up) or, where the layer has a swiglu_limit, that of GPT-OSS,
// (up + 1) · gate_up · sigmoid(1.702 · gate_up), of what SwiGluLimit makes of both.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>

#include "models/host_and_device.h"
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

// GPT-OSS's experts limit what their first matrices gave: gate_up is at most the limit, and up within it either way.
// Values beyond have no slope.
struct SwiGluLimit {
  double limit = 0;  // 0: there is none.

  template <typename T>
  MOEPLAN_HD T Up(T up) const {
    return limit == 0 ? up : up > T(limit) ? T(limit) : up < T(-limit) ? T(-limit) : up;
  }
  template <typename T>
  MOEPLAN_HD T GateUp(T gate_up) const {
    return limit == 0 || !(gate_up > T(limit)) ? gate_up : T(limit);
  }
  template <typename T>
  MOEPLAN_HD T UpSlope(T up) const {
    return limit != 0 && (up > T(limit) || up < T(-limit)) ? 0 : 1;
  }
  template <typename T>
  MOEPLAN_HD T GateUpSlope(T gate_up) const {
    return limit != 0 && gate_up > T(limit) ? 0 : 1;
  }
};

// The loops of ExpertFunction for a type F, in blocks of values of their own, which compilers make vector code whatever
// the caller's memory overlaps. Always part of who calls them, and so of the instructions that may be used there.
inline constexpr size_t kActivationBlock = 64;

template <typename F>
[[gnu::always_inline]] inline void ComputeHidden(const float* up, const float* gate_up, float* hidden, size_t n) {
  constexpr bool kGated = F::kMatrices == 3;
  float u[kActivationBlock] = {}, g[kActivationBlock] = {};
  for (size_t first = 0; first < n; first += kActivationBlock) {
    const size_t count = n - first < kActivationBlock ? n - first : kActivationBlock;
    std::memcpy(u, up + first, count * sizeof(float));
    if (kGated) std::memcpy(g, gate_up + first, count * sizeof(float));
    for (size_t i = 0; i < kActivationBlock; ++i) u[i] = F::Hidden(u[i], g[i]);
    std::memcpy(hidden + first, u, count * sizeof(float));
  }
}

template <typename F>
[[gnu::always_inline]] inline void ComputeGradients(const float* hidden_gradient, float* up, float* gate_up, size_t n) {
  constexpr bool kGated = F::kMatrices == 3;
  float u[kActivationBlock] = {}, g[kActivationBlock] = {}, h[kActivationBlock] = {};
  for (size_t first = 0; first < n; first += kActivationBlock) {
    const size_t count = n - first < kActivationBlock ? n - first : kActivationBlock;
    std::memcpy(h, hidden_gradient + first, count * sizeof(float));
    std::memcpy(u, up + first, count * sizeof(float));
    if (kGated) std::memcpy(g, gate_up + first, count * sizeof(float));
    for (size_t i = 0; i < kActivationBlock; ++i) {
      const float up_slope = F::UpSlope(u[i], g[i]);
      if (kGated) g[i] = h[i] * F::GateUpSlope(u[i], g[i]);
      u[i] = h[i] * up_slope;
    }
    std::memcpy(up + first, u, count * sizeof(float));
    if (kGated) std::memcpy(gate_up + first, g, count * sizeof(float));
  }
}

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
  return {.hidden = [](const float* up, const float* gate_up, float* hidden,
                       size_t n) { ComputeHidden<F>(up, gate_up, hidden, n); },
          .gradients = [](const float* hidden_gradient, float* up, float* gate_up,
                          size_t n) { ComputeGradients<F>(hidden_gradient, up, gate_up, n); },
          .value = [](double up, double gate_up) { return F::Hidden(up, gate_up); },
          .up_slope = [](double up, double gate_up) { return F::UpSlope(up, gate_up); },
          .gate_up_slope = [](double up, double gate_up) { return F::GateUpSlope(up, gate_up); }};
}

// The function of the layer's experts, and of its shared one, takes arguments that are within SwiGluLimit.
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
