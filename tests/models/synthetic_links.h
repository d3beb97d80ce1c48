// Clusters whose links are known, and what measuring collectives on them would give.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "models/cost/samples.h"
#include "models/links/link_fit.h"

namespace moeplan {

// Any speed from PCIe boxes on Ethernet to NVLink on InfiniBand.
inline LinkLine RandomLinks(std::mt19937_64& random) {
  const auto between = [&](double low, double high) {
    return low * std::exp(std::uniform_real_distribution<double>(0, std::log(high / low))(random));
  };
  LinkLine line;
  line.use = {kGatherRoutes[random() % 3], random() % 2 == 0};
  line.costs = {.start_s = between(3e-6, 2e-5),
                .alpha_s = {between(5e-7, 2e-6), between(2e-6, 1.5e-5)},
                .beta_s_per_byte = {1 / between(2e10, 4e11), 1 / between(3e9, 5e10)},
                .memory_s_per_byte = 1 / between(4e11, 3e12)};
  return line;
}

// How a cluster departs from its line.
struct Departures {
  double noise = 0;          // Standard deviation of the log time of one repeat.
  double outlier_share = 0;  // Repeats that take 2 to 10 times as long.
  double curve_spread = 0;   // Standard deviation of one factor for each curve.
  double bend = 0;           // Height of a bump in log time, at a size of its own, which all curves share.
};

class SyntheticCluster {
 public:
  SyntheticCluster(const LinkLine& line, const Departures& departures, uint64_t seed)
      : line_(line), departures_(departures), random_(seed), bend_at_(14 + static_cast<double>(random_() % 10)) {}

  // The time without noise, with this curve's own factor: the truth that a prediction is held against.
  double TrueTimeS(const CollectiveKey& key, double bytes, double curve_factor) const {
    const double doublings = std::log2(bytes) - bend_at_;
    return TimeS(line_, *LoadOf(key, line_.use.route), bytes) * curve_factor *
           std::exp(departures_.bend * std::exp(-doublings * doublings / 8));
  }
  double DrawCurveFactor() { return std::exp(departures_.curve_spread * normal_(random_)); }

  // Nine repeats a size, from 1 KiB by fours to 64 MiB.
  void Measure(const CollectiveKey& key, double curve_factor, SampleSet& samples) {
    for (double bytes = 1024; bytes <= 67108864; bytes *= 4) {
      Sample sample = {.key = key, .size = bytes};
      for (int repeat = 0; repeat < 9; ++repeat) {
        double time_s = TrueTimeS(key, bytes, curve_factor) * std::exp(departures_.noise * normal_(random_));
        if (uniform_(random_) < departures_.outlier_share) time_s *= 2 + 8 * uniform_(random_);
        sample.times_s.push_back(time_s);
      }
      samples.samples.push_back(std::move(sample));
    }
  }

 private:
  const LinkLine line_;
  const Departures departures_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  const double bend_at_;  // log2 bytes.
};

inline CollectiveKey CollectiveOver(Collective collective, int size, int ranks_per_node) {
  return {.collective = collective, .group = {size, ranks_per_node}};
}

inline constexpr Collective kPlainCollectives[] = {Collective::kAllToAll, Collective::kAllGather,
                                                   Collective::kReduceScatter, Collective::kAllReduce};

}  // namespace moeplan
