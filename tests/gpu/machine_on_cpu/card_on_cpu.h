// How work of a test's own is put on a stream of the card on the CPU, as a kernel would be.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace moeplan::on_cpu {

cudaError_t Launch(std::function<void()> kernel, cudaStream_t stream);

}  // namespace moeplan::on_cpu
