// Whether what is measured again and again keeps to the level that was predicted: a two-sided CUSUM on signs.
//
// Each observation is log(measured / predicted). What lies beyond the band around the level, on one side, speaks for a
// shift to that side by ln(p1 / p0) = ln 1.8, what does not against it by ln((1 - p0) / (1 - p1)) = ln 5: the log
// likelihood ratio of "9 of 10 lie beyond" (p1) to "half do" (p0). The sum of a side never falls below 0 (Page 1954),
// and a shift is found once it reaches ln(2·10⁶).
//
// False alarms: for every noise whose median stays within the band, whatever its distribution, at most half lie beyond
// one side. Of independent observations, a side's sum that starts at a given one then ever reaches the threshold with
// probability at most 1/(2·10⁶) (Wald), so that both sides together raise an alarm in the first 10,000 with probability
// at most 1 %. Spikes do not matter, however far they reach. Observations that share a slow moment are not independent:
// whoever observes must leave time between them. A shift that all observations show is found with the 25th.
//
// Pure values; not thread-safe.
#pragma once

#include <deque>
#include <optional>

namespace moeplan::planner {

struct LevelShift {
  double log_ratio = 0;  // The median of the observations that found it, of the last 64 if they are more.
  int observations = 0;  // How many found it: those since nothing spoke for it. At least 1.

  friend bool operator==(const LevelShift&, const LevelShift&) = default;
};

class LevelTest {
 public:
  // Predictions of single operations are off by as much without anything having changed (docs/validation.md).
  static constexpr double kBandRatio = 1.15;

  // With the level at log ratio 0: as predicted.
  LevelTest() = default;

  // A shift that is found starts the test anew, at the same level. Finite values alone.
  std::optional<LevelShift> Observe(double log_ratio);

  // Starts anew at another level: what is known to be off, and by how much.
  void MoveTo(double level_log);
  double level_log() const { return level_log_; }

 private:
  double level_log_ = 0;
  struct Side {
    double sum = 0;
    int since_zero = 0;  // Observations since it was last 0.

    void Add(bool beyond);
  };
  Side above_, below_;
  std::deque<double> latest_;  // Up to kKept.

  static constexpr size_t kKept = 64;
};

}  // namespace moeplan::planner
