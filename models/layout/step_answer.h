// The question "how long does one step of this layout take" and its answer. Values only; the answer is mirrored by
// moeplan.v1.StepResult (contract).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/layout/layout_answer.h"
#include "models/step/two_batches.h"

namespace moeplan {

struct StepQuestion {
  LayoutRequest request;  // `top` is not read.
  Layout layout;          // DP 0: whatever fills the GPUs.
  int micro_batch = 1;
  // Whether contexts lie across the experts' ranks; absent: as MoNTA's rule says (planner/layout/layout_space.h).
  std::optional<bool> horizontal_contexts;
  // How the MoE layers run: of the plans of this family, and with so many chunks and partitions where they are given,
  // the best that fits; absent: of all plans.
  std::optional<Family> schedule;
  std::optional<int> chunks, partition_degree;
  // MoE layers run in one piece, and Lancet's passes plan the graph of each stage (planner/lancet/stage_gains.h);
  // `schedule`, `chunks` and `partition_degree` are then absent.
  bool lancet = false;
};

struct StepPartTime {
  std::string part;
  double forward_s = 0, backward_s = 0;  // How long a rank is at it in a step, hidden or not.
  double exposed_s = 0;                  // How much longer the step is for it.

  friend bool operator==(const StepPartTime&, const StepPartTime&) = default;
};

// How far one cost alone may move the step.
struct StepError {
  CostKey key;        // Of the MoE layers together: their dearest.
  double square = 0;  // Of the logarithm of the step, at the end of the cost's 90 % interval; the mean of both ends.

  friend bool operator==(const StepError&, const StepError&) = default;
};

// Says how much Lancet's passes hide in a step, over all micro-batches of the slowest stage. Parts of the step are
// shorter by both sums together.
struct LancetInStep {
  double ranges_s = 0;            // Hidden by ranges of the forward pass that are cut and pipelined.
  double weight_gradients_s = 0;  // Hidden by weight gradients beside all-to-alls of the backward pass.
  double without_step_s = 0;      // The step of the same MoE layers without the passes.

  friend bool operator==(const LancetInStep&, const LancetInStep&) = default;
};

struct StepAnswer {
  RankedLayout layout;              // As a ranking lists it.
  double low_s = 0, high_s = 0;     // 90 % interval of the step.
  std::vector<StepPartTime> parts;  // All exposed_s sum to the step. Parts that the layout does not have are left out.
  std::vector<StepError>
      errors;                // What the interval is made of beside what the sum of the parts misses; largest first.
  double missing_bytes = 0;  // What a GPU lacks; 0: it fits, or the memory of a GPU is not known.
  std::optional<OverlappedLayers> overlap;  // Of the slowest stage; absent: nothing runs beside another micro-batch.
  std::optional<LancetInStep> lancet;       // Absent: the question did not ask for Lancet's passes.
  std::vector<std::string> warnings;

  friend bool operator==(const StepAnswer&, const StepAnswer&) = default;
};

// How many times as long another step takes, with the 90 % interval of that.
struct StepRatio {
  double ratio = 1, low = 1, high = 1;
  StepAnswer other;  // The other step's.
};

}  // namespace moeplan
