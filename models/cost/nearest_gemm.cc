#include "models/cost/nearest_gemm.h"

#include <cmath>
#include <utility>

namespace moeplan {
namespace {

double LogDifference(double a, double b) { return std::abs(std::log2(a / b)); }

}  // namespace

const KernelModel* NearestGemm(const Profile& profile, const KernelKey& key) {
  const auto difference = [](const std::optional<int>& measured, const std::optional<int>& asked) {
    return measured && asked ? LogDifference(*measured, *asked) : 0;
  };
  const auto distance = [&](const KernelKey& measured) {
    const bool other_size =
        measured.bytes_per_element && key.bytes_per_element && *measured.bytes_per_element != *key.bytes_per_element;
    return std::pair(other_size,
                     difference(measured.model_dim, key.model_dim) + difference(measured.hidden_dim, key.hidden_dim));
  };
  const KernelModel* nearest = nullptr;
  for (const KernelModel& entry : profile.kernels) {
    if (entry.key.kernel != Kernel::kExpertGemm || entry.key.contention != Contention::kNone) continue;
    if (nearest == nullptr || distance(entry.key) < distance(nearest->key)) nearest = &entry;
  }
  return nearest;
}

KernelKey WithDimensionsOf(KernelKey key, const KernelKey& other) {
  key.bytes_per_element = other.bytes_per_element;
  key.model_dim = other.model_dim;
  key.hidden_dim = other.hidden_dim;
  return key;
}

}  // namespace moeplan
