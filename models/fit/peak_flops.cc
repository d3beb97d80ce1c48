#include "models/fit/peak_flops.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "models/fit/statistics.h"

namespace moeplan {
namespace {

bool IsForwardProduct(const KernelKey& key) {
  constexpr int kBf16Bytes = 2;
  return BuiltInLike(key.kernel) == Kernel::kExpertGemm ||
         (key.kernel == Kernel::kLinear && key.bytes_per_element.value_or(kBf16Bytes) >= kBf16Bytes);
}

}  // namespace

double FastestGemmFlopsPerS(std::span<const Sample> samples) {
  std::map<std::pair<KernelKey, double>, std::vector<double>> times_s;
  for (const Sample& sample : samples) {
    const auto* kernel = std::get_if<KernelKey>(&sample.key);
    if (kernel == nullptr || !IsForwardProduct(*kernel)) continue;
    std::vector<double>& all = times_s[{*kernel, sample.size}];
    all.insert(all.end(), sample.times_s.begin(), sample.times_s.end());
  }
  double fastest = 0;
  for (const auto& [what, all] : times_s) fastest = std::max(fastest, what.second / Median(all));
  return fastest;
}

}  // namespace moeplan
