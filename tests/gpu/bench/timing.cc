#include "tests/gpu/bench/timing.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "executor/cuda/errors.h"

namespace moeplan::executor::cuda {
namespace {

void Check(cudaError_t error, const char* what) { CheckOk(StatusOf(error, what)); }

class BenchStream {
 public:
  BenchStream() { Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  BenchStream(const BenchStream&) = delete;
  BenchStream& operator=(const BenchStream&) = delete;
  ~BenchStream() { cudaStreamDestroy(stream_); }

  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// The median over launches that are queued one behind the other, after some that do not count.
double MedianOfLaunches(const BenchStream& stream, const std::function<void()>& launch) {
  constexpr int kWarmUps = 5, kLaunches = 16;
  std::vector<cudaEvent_t> events(kLaunches + 1);
  for (cudaEvent_t& event : events) Check(cudaEventCreate(&event), "cudaEventCreate");
  for (int i = 0; i < kWarmUps; ++i) launch();
  for (cudaEvent_t event : events) {
    Check(cudaEventRecord(event, stream.get()), "cudaEventRecord");
    if (event != events.back()) launch();
  }
  Check(cudaStreamSynchronize(stream.get()), "what was measured");
  std::vector<double> seconds;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, events[i], events[i + 1]), "cudaEventElapsedTime");
    seconds.push_back(milliseconds / 1e3);
  }
  for (cudaEvent_t event : events) Check(cudaEventDestroy(event), "cudaEventDestroy");
  std::ranges::nth_element(seconds, seconds.begin() + kLaunches / 2);
  return seconds[kLaunches / 2];
}

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

double MedianSeconds(const std::function<void(cudaStream_t)>& run) {
  constexpr int kMostRuns = 100;
  constexpr double kSecondsOfLaunch = 1e-3;
  const double queued = MedianSecondsQueued(run);
  const int runs = std::clamp(static_cast<int>(kSecondsOfLaunch / queued), 1, kMostRuns);
  const BenchStream stream;
  cudaGraph_t graph;
  cudaGraphExec_t launched;
  Check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  for (int i = 0; i < runs; ++i) run(stream.get());
  Check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
  Check(cudaGraphInstantiate(&launched, graph, 0), "cudaGraphInstantiate");
  const double seconds =
      MedianOfLaunches(stream, [&] { Check(cudaGraphLaunch(launched, stream.get()), "cudaGraphLaunch"); });
  Check(cudaGraphExecDestroy(launched), "cudaGraphExecDestroy");
  Check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return seconds / runs;
}

double MedianSecondsQueued(const std::function<void(cudaStream_t)>& run) {
  const BenchStream stream;
  return MedianOfLaunches(stream, [&] { run(stream.get()); });
}

}  // namespace moeplan::executor::cuda
