// Ranks with a card each, connected by NCCL.
//
// Communicators do not block. Each operation has `deadline_s` from when its stream reaches it; what is late, lost or
// failed is found when the host waits for the device, where the communicator is aborted and the device fails. NCCL does
// not tell which peer it waits for, so errors name all that take part, and what its RAS service knows, which may take
// another 2 s. A rank that aborts tells the others through `aborts`; without one they find out by their own deadlines.
//
// Operations can be part of a CUDA graph, which must go before the exchange does. An abort goes on behind until
// such graphs are gone; the end of the exchange waits for it, at most 10 s.
#pragma once

#include <memory>
#include <string>

#include "executor/cuda/cuda_device.h"
#include "executor/cuda/nccl_ras.h"
#include "executor/cuda/part_exchange.h"
#include "executor/cuda/share_bytes.h"
#include "executor/host/abort_line.h"

namespace moeplan::executor::cuda {

// Such as "NCCL 2.28.3".
std::string NcclVersion();

struct NcclOptions {
  double deadline_s = 30;
  int max_ctas = 0;             // Of the group and those split from it; 0: NCCL's own choice.
  AbortLine* aborts = nullptr;  // Borrowed; or null.
  std::string name = "nccl";    // Among the groups of `aborts`; the same on all ranks.
  std::string ras_address = RasAddress();
};

// `device` is borrowed. Collective; blocks, at most deadline_s.
StatusOr<std::unique_ptr<PartExchange>> MakeNcclExchange(int rank, int size, const ShareBytes& share,
                                                         CudaDevice& device, const NcclOptions& options);

}  // namespace moeplan::executor::cuda
