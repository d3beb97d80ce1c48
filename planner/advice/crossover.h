// Which dispatcher is the fastest for a layout, and where that changes: along micro-batches, ranks of experts, GPUs, or
// how much more the busiest rank gets.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/cost/profile.h"
#include "models/layout/step_answer.h"
#include "models/status.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

enum class CrossoverAxis { kMicroBatch, kExpertParallel, kGpus, kExpertImbalance };
// "microBatch", "expertParallel", "gpus" and "expertImbalance".
std::string_view Name(CrossoverAxis axis);
std::optional<CrossoverAxis> CrossoverAxisOf(std::string_view name);

struct CrossoverRequest {
  StepQuestion question;  // The layout; its own dispatcher and schedule are not read.
  CrossoverAxis axis = CrossoverAxis::kMicroBatch;
  std::vector<double> values;  // Rising; at most kMostCrossoverValues.
  std::vector<Dispatcher> dispatchers = {Dispatcher::kAllToAll, Dispatcher::kAllGather, Dispatcher::kDeepEp,
                                         Dispatcher::kHybridEp};
};
inline constexpr size_t kMostCrossoverValues = 64;

struct DispatcherStep {
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  std::optional<double> step_s;  // Absent: no price, or it does not fit.
  std::string reason;            // Why.
};

struct CrossoverPoint {
  double value = 0;
  std::vector<DispatcherStep> steps;  // In the request's order.
  std::optional<Dispatcher> best, runner_up;
  StepRatio ratio;  // Of the runner-up over the best.

  // Whether the 90 % interval tells both apart.
  bool decided() const { return runner_up && ratio.low > 1; }
};

// The fastest is another one at the next value.
struct Flip {
  Dispatcher from = Dispatcher::kAllToAll, to = Dispatcher::kAllToAll;
  double before = 0, after = 0;  // The values between which it lies.
  // The last value before and the first behind at which the interval tells `from` and `to` apart; absent where none
  // does.
  std::optional<double> surely_before, surely_after;
};

struct Crossover {
  std::vector<CrossoverPoint> points;
  std::vector<Flip> flips;
};

// `profile_of` gives the profile for so many GPUs. Along GPUs the global batch grows with them.
//
// kInvalidInput: the values are none, too many or not rising, the model has no experts, or no point has a price.
// kCancelled. Pure but for `profile_of`.
StatusOr<Crossover> FindCrossover(const CrossoverRequest& request,
                                  const std::function<StatusOr<Profile>(int gpus)>& profile_of,
                                  const StopSignals& stop = {});

}  // namespace moeplan::planner
