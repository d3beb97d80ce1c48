// Exchanges over tensor-parallel ranks that travel piece by piece beside the products around them: a ring exchange
// (Transformer Engine's userbuffers, Megatron's tp_comm_overlap). Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/training/training_graph.h"

namespace moeplan::planner {

// Cuts each of these gathers with the products that read it, and each of these reduce-scatters with the product that
// makes what it sums, into so many pieces ("ID.piece1", ...). A piece of a product waits for that piece of the gather
// alone, and a piece of a reduce-scatter for that piece of the product; whatever else reads them waits for all. Weight
// gradients stay whole, and so does an exchange that no product is beside. Pieces are equal parts of the whole's times,
// bytes, flops and outputs, without a latency of their own, as in planner/layout/step_time.cc (AddTensor).
//
// `pieces` says how many, by the exchange's id. Requires instructions that name no forward one.
void CutIntoPieces(const std::map<std::string, int>& pieces, std::vector<Instruction>& instructions);

}  // namespace moeplan::planner
