// Ranks that are processes with a card, as whoever drives ranks makes them.
//
// The ranks of a node take its visible cards in turn, or that which a job has chosen. Where every rank of the job has a
// card of its own they are connected by NCCL; ranks that share one by their hosts (staged_exchange.h). Either way Gloo
// connects them first.
#pragma once

#include "executor/rank_backend.h"

namespace moeplan::executor::cuda {

const RankBackend& CudaBackend();

}  // namespace moeplan::executor::cuda
