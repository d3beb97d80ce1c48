// Ranks as threads of this process that share one card, or several that reach each other's memory.
//
// Ranks meet while they queue: each tells the others over its mesh what it sends and which event its stream has to pass
// first, and receivers copy. So queueing blocks until the group has come, at most `deadline_s`, and ranks need threads
// of their own that queue the operations of all their groups in the same order. Nothing on the card ever waits for work
// that is not queued yet: streams share the card's queues, so that could stop it for ever.
#pragma once

#include <memory>

#include "executor/cuda/cuda_device.h"
#include "executor/cuda/part_exchange.h"
#include "executor/host/mesh.h"

namespace moeplan::executor::cuda {

// `mesh`: of MakeInProcessMeshes or made from one of these. `device` is borrowed.
std::unique_ptr<PartExchange> MakeInProcessExchange(std::unique_ptr<Mesh> mesh, CudaDevice& device, double deadline_s);

}  // namespace moeplan::executor::cuda
