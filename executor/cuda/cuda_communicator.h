// Collectives of the cuda backend, made of exchanges of parts and of sums on the card: reductions add in float in rank
// order, as everywhere (executor/communicator.h), so ranks exchange their parts and add themselves, which moves no more
// bytes than a ring.
//
// Queues on the driving thread of `device` and returns, but for two: rows with counts, and transfers that are listed
// late. Their sizes are on the card, and the host, which has to name them, waits for the stream there. Where a
// recording has one of them, it is queued anew at each run.
#pragma once

#include <memory>

#include "executor/communicator.h"
#include "executor/cuda/cuda_device.h"
#include "executor/cuda/part_exchange.h"

namespace moeplan::executor::cuda {

// `device` is borrowed.
std::unique_ptr<Communicator> MakeCudaCommunicator(std::unique_ptr<PartExchange> exchange, CudaDevice& device);

}  // namespace moeplan::executor::cuda
