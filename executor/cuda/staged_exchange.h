// Ranks that reach each other only as hosts do, over a mesh of Gloo's or another: what they send and receive goes
// through pinned memory. For ranks of several processes that share a card, and where there is no NCCL.
//
// Queues and returns. When the stream comes to an operation, a thread of this group's own carries it over the mesh
// while the stream waits for a number in memory; no host function blocks. Each operation has `deadline_s` from then.
// One that is late or lost fails the device with an error that names rank, task and bytes, and lets the stream go on.
//
// Pinned memory is taken when an operation needs more than any before, and kept; a job's largest exchange is there
// twice, as sent and as received. What is queued cannot be part of a CUDA graph, unless the rank is alone: a recording
// with exchanges is queued anew at each run.
#pragma once

#include <memory>

#include "executor/cuda/cuda_device.h"
#include "executor/cuda/part_exchange.h"
#include "executor/host/mesh.h"

namespace moeplan::executor::cuda {

struct StagedOptions {
  double deadline_s = 30;
  // Of the same ranks, where they are threads of one process; else null. Streams of one process may share a queue of
  // the card, and what a rank sends could then stand behind another rank's wait for it. So such ranks meet while they
  // queue, which blocks, at most deadline_s.
  std::unique_ptr<Mesh> meeting;
};

// `device` is borrowed. Splitting off a group waits for the operations before it.
StatusOr<std::unique_ptr<PartExchange>> MakeStagedExchange(std::unique_ptr<Mesh> mesh, CudaDevice& device,
                                                           StagedOptions options);

}  // namespace moeplan::executor::cuda
