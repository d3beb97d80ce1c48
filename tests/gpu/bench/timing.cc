#include "tests/gpu/bench/timing.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "executor/cuda/errors.h"

namespace moeplan::executor::cuda {
namespace {

void Check(cudaError_t error, const char* what) { CheckOk(StatusOf(error, what)); }

}  // namespace

void CheckOk(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "gpu_bench: %s\n", status.message().c_str());
  std::exit(1);
}

BenchMemory::BenchMemory(size_t bytes) : bytes_(bytes) {
  Check(cudaMalloc(reinterpret_cast<void**>(&data_), bytes), "cudaMalloc");
}
BenchMemory::~BenchMemory() { cudaFree(data_); }

void BenchMemory::FillBytes(const std::byte* pattern, size_t pattern_bytes) const {
  size_t filled = std::min(bytes_, pattern_bytes);
  Check(cudaMemcpy(data_, pattern, filled, cudaMemcpyHostToDevice), "cudaMemcpy");
  while (filled < bytes_) {
    const size_t more = std::min(filled, bytes_ - filled);
    Check(cudaMemcpy(data_ + filled, data_, more, cudaMemcpyDeviceToDevice), "cudaMemcpy");
    filled += more;
  }
}

double MedianSeconds(const std::function<void()>& run) {
  constexpr int kWarmUps = 5, kRuns = 31;
  cudaEvent_t start, end;
  Check(cudaEventCreate(&start), "cudaEventCreate");
  Check(cudaEventCreate(&end), "cudaEventCreate");
  for (int i = 0; i < kWarmUps; ++i) run();
  std::vector<double> seconds;
  for (int i = 0; i < kRuns; ++i) {
    Check(cudaEventRecord(start), "cudaEventRecord");
    run();
    Check(cudaEventRecord(end), "cudaEventRecord");
    Check(cudaEventSynchronize(end), "what was measured");
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, start, end), "cudaEventElapsedTime");
    seconds.push_back(milliseconds / 1e3);
  }
  Check(cudaEventDestroy(start), "cudaEventDestroy");
  Check(cudaEventDestroy(end), "cudaEventDestroy");
  std::ranges::nth_element(seconds, seconds.begin() + kRuns / 2);
  return seconds[kRuns / 2];
}

}  // namespace moeplan::executor::cuda
