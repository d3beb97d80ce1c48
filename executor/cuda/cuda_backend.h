// Ranks that are processes with a card, as whoever drives ranks makes them.
//
// The ranks of a node take its visible cards in turn. Where every rank of the job has a card of its own they are
// connected by NCCL; ranks that share one by their hosts (staged_exchange.h). Either way Gloo connects them first.
#pragma once

#include "executor/rank_backend.h"

namespace moeplan::executor::cuda {

const RankBackend& CudaBackend();

}  // namespace moeplan::executor::cuda

// By which the command finds the backend in its library (executor/backends.h).
extern "C" const char* const moeplan_library_version;
extern "C" const moeplan::executor::RankBackend* moeplan_cuda_backend();
