// The part of NCCL that executor/cuda/ uses, between threads of this process on the card on the CPU. Communicators do
// not block: whatever is asked of them is under way for a while. A peer that does not come, or has aborted, leaves the
// others waiting on their streams until they abort, too.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "tests/gpu/machine_on_cpu/cuda_runtime_api.h"

using ncclComm_t = struct CommOnCpu*;
struct ncclUniqueId {
  char internal[128];
};
enum ncclResult_t {
  ncclSuccess,
  ncclUnhandledCudaError,
  ncclSystemError,
  ncclInternalError,
  ncclInvalidArgument,
  ncclInvalidUsage,
  ncclRemoteError,
  ncclInProgress,
};
enum ncclDataType_t { ncclInt8 };
struct ncclConfig_t {
  int blocking, maxCTAs;
};
#define NCCL_CONFIG_INITIALIZER \
  { INT_MIN, INT_MIN }

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config);
ncclResult_t ncclCommRegister(ncclComm_t comm, void* memory, size_t bytes, void** handle);
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);

ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t stream);

namespace moeplan::on_cpu {
// From now on every communicator of this process tells `result` when it is asked how it is; ncclSuccess: none does.
void BreakNccl(ncclResult_t result);
// How many communicators there are that were neither destroyed nor aborted.
int Communicators();
// How much memory is registered with those of this process.
int Registrations();
// That the last one was made with, on this thread.
int MaxCtas();
// What the environment said of NCCL_LAUNCH_ORDER_IMPLICIT when the first one was made; empty: nothing.
std::string LaunchOrder();
}  // namespace moeplan::on_cpu
