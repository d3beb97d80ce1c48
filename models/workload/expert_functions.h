// What stands between the matrices of the experts that we ship, as types for ExpertFunctionOf (expert.h), for host and
// device alike. T is float or double. Slopes gives both slopes at once, which computes what they have in common once.
#pragma once

#include <numbers>

#include "models/host_and_device.h"
#include "models/workload/vector_math.h"

namespace moeplan {

template <typename T>
struct ExpertSlopes {
  T up = 0, gate_up = 0;
};

// Exact, by erf.
struct Gelu {
  static constexpr int kMatrices = 2;

  template <typename T>
  MOEPLAN_HD static T Hidden(T up, T) {
    return up * T(0.5) * (1 + vector_math::Erf(up * InverseSqrt2<T>()));
  }
  template <typename T>
  MOEPLAN_HD static T UpSlope(T up, T) {
    constexpr T kInverseSqrt2Pi = std::numbers::inv_sqrtpi_v<T> * InverseSqrt2<T>();
    return T(0.5) * (1 + vector_math::Erf(up * InverseSqrt2<T>())) +
           up * kInverseSqrt2Pi * vector_math::Exp(T(-0.5) * up * up);
  }
  template <typename T>
  MOEPLAN_HD static T GateUpSlope(T, T) {
    return 0;
  }
  template <typename T>
  MOEPLAN_HD static ExpertSlopes<T> Slopes(T up, T gate_up) {
    return {.up = UpSlope(up, gate_up)};
  }

 private:
  template <typename T>
  MOEPLAN_HD static constexpr T InverseSqrt2() {
    return std::numbers::sqrt2_v<T> / 2;
  }
};

struct SwiGlu {
  static constexpr int kMatrices = 3;

  template <typename T>
  MOEPLAN_HD static T Hidden(T up, T gate_up) {
    return up * (gate_up * Sigmoid(gate_up));
  }
  template <typename T>
  MOEPLAN_HD static T UpSlope(T up, T gate_up) {
    return Slopes(up, gate_up).up;
  }
  template <typename T>
  MOEPLAN_HD static T GateUpSlope(T up, T gate_up) {
    return Slopes(up, gate_up).gate_up;
  }
  template <typename T>
  MOEPLAN_HD static ExpertSlopes<T> Slopes(T up, T gate_up) {
    const T sigmoid = Sigmoid(gate_up);
    return {.up = gate_up * sigmoid, .gate_up = up * sigmoid * (1 + gate_up * (1 - sigmoid))};
  }
  template <typename T>
  MOEPLAN_HD static T Sigmoid(T x) {
    return vector_math::Reciprocal(1 + vector_math::Exp(-x));
  }
};

// GPT-OSS computes this (GptOssExperts of Hugging Face's transformers) of arguments that are within SwiGluLimit.
struct GptOssSwiGlu {
  static constexpr int kMatrices = 3;

  template <typename T>
  MOEPLAN_HD static T Hidden(T up, T gate_up) {
    return (up + 1) * (gate_up * SwiGlu::Sigmoid(Steep(gate_up)));
  }
  template <typename T>
  MOEPLAN_HD static T UpSlope(T up, T gate_up) {
    return Slopes(up, gate_up).up;
  }
  template <typename T>
  MOEPLAN_HD static T GateUpSlope(T up, T gate_up) {
    return Slopes(up, gate_up).gate_up;
  }
  template <typename T>
  MOEPLAN_HD static ExpertSlopes<T> Slopes(T up, T gate_up) {
    const T sigmoid = SwiGlu::Sigmoid(Steep(gate_up));
    return {.up = gate_up * sigmoid, .gate_up = (up + 1) * sigmoid * (1 + Steep(gate_up) * (1 - sigmoid))};
  }

 private:
  template <typename T>
  MOEPLAN_HD static T Steep(T gate_up) {
    return T(1.702) * gate_up;
  }
};

}  // namespace moeplan
