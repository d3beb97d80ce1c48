// The work of a step, piece by piece, in the order in which it was launched.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/cost/collective.h"
#include "models/status.h"
#include "proto/kineto/nesting.h"

namespace moeplan::kineto {

// A kernel, or on a CPU an outermost operator that computes.
struct Piece {
  int event = -1;
  Owners owners;
  double launch_us = 0;
  double start_us = 0, end_us = 0;  // On its stream or thread.
  double busy_us = 0;               // Its time; on a CPU with the thread's own time before it.
  std::int64_t stream = 0;
  bool backward = false;
  bool in_node = false;                  // It runs in a backward node; callbacks of autograd's engine do not.
  bool accumulates = false;              // In a node that sums gradients.
  bool communicates = false;             // Collectives, and what else ranks send each other.
  std::optional<Collective> collective;  // Absent: it computes, or communicates in a way that no graph has.
  Call call;                             // As far as the trace says.
};

struct StepWork {
  std::vector<Piece> pieces;
  bool on_gpu = false;
  double busy_us = 0;  // Times at which at least one piece runs.
  double wall_us = 0;  // From the first start to the last end.
  size_t untied = 0;   // Kernels that nothing of the step has launched.
};

// kInvalidInput: there is no work, or the trace has kernels and none is tied to the step.
StatusOr<StepWork> WorkOf(const Trace& trace, const Nesting& nesting);

}  // namespace moeplan::kineto
