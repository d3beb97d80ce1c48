// The part of CUDA's runtime that executor/cuda/ drives a card with, on the CPU: found in place of the toolkit's header
// of this name. Streams are threads, so what nothing orders runs in any order; for correctness alone, not for time.
//
// Stricter than a card where a card would misbehave later, or only sometimes: host functions take turns, and one that
// calls CUDA ends the program; a graph runs its nodes in a random order that its edges allow; memory begins as garbage;
// streams that are left out of a capture, waits in it for what is outside, and pageable memory in copies are errors.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "tests/gpu/on_cpu/kernels_on_cpu.h"

#define CUDART_CB
#define CUDART_VERSION 13000

enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorInvalidDevice,
  cudaErrorNotReady,
  cudaErrorCudartUnloading,
  cudaErrorStreamCaptureUnsupported,
  cudaErrorStreamCaptureUnjoined,
  cudaErrorStreamCaptureIsolation,
};
enum cudaDeviceAttr { cudaDevAttrL2CacheSize };
enum cudaMemcpyKind { cudaMemcpyDefault };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound };
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  size_t totalGlobalMem;
  int major, minor, multiProcessorCount, l2CacheSize;
};
struct cudaPointerAttributes {
  cudaMemoryType type;
};

using cudaStream_t = struct StreamOnCpu*;
using cudaEvent_t = struct EventOnCpu*;
using cudaGraph_t = struct GraphOnCpu*;
using cudaGraphExec_t = struct GraphOnCpu*;
using cudaHostFn_t = void (*)(void*);

inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2,
                          cudaEventRecordExternal = 1, cudaEventWaitDefault = 0, cudaEventWaitExternal = 1,
                          cudaHostAllocPortable = 1;
inline constexpr unsigned long long cudaGraphInstantiateFlagUseNodePriority = 8, cudaEnableDefault = 0;

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int card);
cudaError_t cudaGetDevice(int* card);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int card);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int card);
cudaError_t cudaDeviceGetPCIBusId(char* bus, int length, int card);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);

// Of the functions of cuda.h.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long flags, cudaDriverEntryPointQueryResult* found);

cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* elapsed_ms, cudaEvent_t from, cudaEvent_t to);

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* runs, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t runs, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t runs);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

namespace moeplan::on_cpu {
// Empty: the environment says nothing of it.
std::string FromEnvironment(const char* name);
// What it said of CUDA_DEVICE_MAX_CONNECTIONS when CUDA was first used.
std::string Connections();
// How many cards there are: one, until this is called. Not while devices are made.
void SetCards(int cards);
// How kernels, and work of a test's own, are put on a stream.
cudaError_t Launch(std::function<void()> kernel, cudaStream_t stream);
// From now on no graph can be instantiated on this thread.
void RefuseGraphs();
// How many graphs were launched so far, by all threads.
int Launches();
// How often memory was allocated, that of the host included.
int Allocations();
// How many events there are.
int Events();
}  // namespace moeplan::on_cpu
