// Random but valid values for the store's tests, and the seed that repeats them.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "db/store.h"

namespace moeplan {

class RandomValues {
 public:
  explicit RandomValues(std::uint64_t seed) : engine_(seed) {}

  int Int(int low, int high) { return std::uniform_int_distribution(low, high)(engine_); }
  // Any finite double above 0, all exponents alike, subnormals too.
  double Positive();
  // One of the infinities, zeros, extremes, or any double of either sign; never NaN.
  double Awkward();
  std::string Text();
  Cluster AnyCluster();
  CollectiveKey AnyCollectiveKey();
  KernelKey AnyKernelKey();
  CostModel AnyCostModel();
  Profile AnyProfile(const std::string& name);
  Sample AnySample();
  SampleBatch AnyBatch(const std::string& request_id, int samples);

 private:
  bool Coin() { return Int(0, 1) == 1; }
  template <typename Enum>
  Enum Pick(Enum last) {
    return static_cast<Enum>(Int(0, static_cast<int>(last)));
  }
  AlphaBeta AnyAlphaBeta();
  FitQuality AnyFit();
  Curve AnyCurve();

  std::mt19937_64 engine_;
};

}  // namespace moeplan
