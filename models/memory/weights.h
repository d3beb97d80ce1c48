// Bytes of one rank's weights, gradients and optimizer states: MoNTA, Table 3, with the slips resolved as design.md §4
// says.
//
// Adam in mixed precision: a parameter of 2 bytes has a weight and a gradient of 2 bytes each, and a copy, a momentum
// and a variance in FP32; one of 4 bytes is its own copy. 16 bytes either way. Pure.
#pragma once

#include "models/workload/workload.h"

namespace moeplan {

// Of the `parameters` that a rank holds (ψ) and shares with `replicas` - 1 other ranks (d' of them in all). ZeRO cuts
// over the replicas, from stage 1 on the optimizer states, from 2 on the gradients, from 3 on the weights: with 2 bytes
// 16ψ, 4ψ + 12ψ/d', 2ψ + 14ψ/d', 16ψ/d'.
//   dense layers   ψ = P1 / (PP·t),          d' = P / (PP·t)
//   experts        ψ = P2 / (PP·N_ESP·N_EP), d' = P / (PP·N_ESP·N_EP)
// `gradient_bytes` of each: 4 where gradients are summed in FP32, as frameworks do; 0: as many as of a weight.
// Requires a stage of 0 to kMaxZeroStage, replicas >= 1, 2 or 4 bytes.
struct TrainingState {
  double weight_bytes = 0;
  double gradient_bytes = 0;
  double optimizer_bytes = 0;  // The FP32 copy where there is one, momentum and variance.

  double total_bytes() const { return weight_bytes + gradient_bytes + optimizer_bytes; }
};
TrainingState TrainingStateOf(double parameters, double replicas, int zero_stage, int bytes_per_element,
                              int gradient_bytes = 0);

}  // namespace moeplan
