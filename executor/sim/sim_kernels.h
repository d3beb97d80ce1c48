// The MoE kernels on a simulated GPU: what each takes, and, with data, the values too, by executor/host.
//
// A kernel takes its launches one after the other, then the longer of its compute (gemm_time.h) and what it reads and
// writes, which share processor and memory with whatever runs beside them. Below, rows are rows of M elements: those
// that cells hold when the stream gets there; `kept` columns those of ExpertFfn::kept_columns.
//
//   kernel                     launches  GEMMs, for each expert of m rows     reads and writes
//   Gate                       2         tokens × E × M                       tokens, gate, scores, routing
//   AssignSlots                1                                              routing, counts
//   Dispatch, CombineGradient  1                                              slots twice
//   Combine, DispatchGradient  1                                              slots, tokens, an addend
//   RoutingGradient            1                                              slots, tokens
//   CopyCells, SumCells        1                                              cells read, cells written
//   Encode, Decode             1                                              rows, codes
//   Expert                     2         m × kept × M, m × M × H/N_ESP        weights, rows twice, kept twice
//   ExpertInputGradient        2         the same                             the same
//   ExpertWeightGradient       2         M × kept × m, H/N_ESP × M × m        rows twice, kept twice, float gradients
//                                                                             twice
//   GateGradient               2         tokens × E × M, tokens × M × E,      tokens four times, gate and its gradient
//                                        E × M × tokens
//
// The shared expert is one more of its kind.
//
// Without data, only what the host reads is made: pair i of a source batch goes to expert i mod E, so that routing is
// balanced and every rank knows it; EXPERT_CHOICE fills every slot that it has tokens for. Rows, routing and gradients
// keep what was in their memory, and weights need a shard but no values.
#pragma once

#include <memory>

#include "executor/kernels.h"
#include "models/cluster/simulated_cluster.h"
#include "models/cost/operation.h"
#include "models/status.h"

namespace moeplan::executor {

// Makes kernels for streams of a virtual device (executor/virtual). `weights` and `gradients` as for MakeHostKernels,
// whose errors come with `data`.
StatusOr<std::unique_ptr<Kernels>> MakeSimKernels(const SimulatedGpu& gpu, bool data, const Layer& layer,
                                                  const LayerWeightsView& weights, const LayerGradientsView& gradients = {});

// Queues a kernel of the rest of a step, which takes what StepKernelSize says and computes nothing.
void EnqueueStepKernel(const SimulatedGpu& gpu, const KernelKey& key, double size, Stream& stream);
// Queues work that keeps the GPU's processors for so long.
void EnqueueTimedKernel(double time_s, Stream& stream);

}  // namespace moeplan::executor
