#include "executor/cuda/stream_gate.h"

#include <cuda.h>

#include <atomic>

#include "executor/cuda/errors.h"
#include "executor/cuda/pinned_memory.h"

namespace moeplan::executor::cuda {
namespace {

using WaitForValue = decltype(&cuStreamWaitValue32);

// Through the runtime, so that no program is linked with a driver that its machine may lack.
cudaError_t FindDriverFunction(const char* name, void** function) {
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned kVersion = 12000;  // Of the function's present form.
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, function, kVersion, cudaEnableDefault, &found);
#else
  static_assert(CUDART_VERSION >= kVersion);
  const cudaError_t error = cudaGetDriverEntryPoint(name, function, cudaEnableDefault, &found);
#endif
  if (error == cudaSuccess && found != cudaDriverEntryPointSuccess) *function = nullptr;
  return error;
}

uint32_t* NumberIn(const DeviceMemory& memory) { return reinterpret_cast<uint32_t*>(memory.data()); }

}  // namespace

StatusOr<StreamGate> StreamGate::Make() {
  StreamGate gate;
  RETURN_IF_ERROR(StatusOf(FindDriverFunction("cuStreamWaitValue32", &gate.wait_), "cuStreamWaitValue32"));
  if (gate.wait_ == nullptr) {
    return Unimplemented(
        "found no cuStreamWaitValue32 in this machine's driver, expected that of CUDA 12 or later; connect the ranks "
        "by "
        "NCCL or update the driver");
  }
  ASSIGN_OR_RETURN(gate.memory_, AllocatePinned(sizeof(uint32_t)));
  *NumberIn(gate.memory_) = 0;
  return gate;
}

Status StreamGate::Hold(cudaStream_t stream, uint32_t number) const {
  const CUresult result = reinterpret_cast<WaitForValue>(wait_)(stream, reinterpret_cast<CUdeviceptr>(memory_.data()),
                                                                number, CU_STREAM_WAIT_VALUE_GEQ);
  if (result == CUDA_SUCCESS) return OkStatus();
  return InternalError(StrCat("a wait for a number: the CUDA driver says error ", static_cast<int>(result)));
}

void StreamGate::Raise(uint32_t number) {
  std::atomic_ref(*NumberIn(memory_)).store(number, std::memory_order_release);
}

}  // namespace moeplan::executor::cuda
