// Prints JSON: the card, what a large copy and one product take on it, each kernel as a share of that, and a layer that
// is replayed as a graph beside its tasks. Ends with 1 where CUDA fails, with 2 where there is no GPU. With --card it
// names the card alone.
#include <cstdio>
#include <string_view>

#include "executor/cuda/card_facts.h"
#include "executor/cuda/errors.h"
#include "tests/gpu/bench/timing.h"

namespace moeplan::executor::cuda {
namespace {

// Read and written, each once. Not a graph's: there the same copy took 1.5 times as long on an H200.
double CopyBytesPerSecond() {
  constexpr size_t kBytes = size_t{1} << 30;
  const BenchMemory from(kBytes), to(kBytes);
  from.Fill(std::vector<uint32_t>{0x3f800001, 0xbf123456, 0x40490fdb});
  const double seconds = MedianSecondsQueued([&](cudaStream_t stream) {
    CheckOk(
        StatusOf(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, stream), "a large copy"));
  });
  return 2.0 * kBytes / seconds;
}

void Print(const LayerReplay& replay) {
  const double ratio = replay.seconds / replay.busiest_stream_s;
  std::printf("  \"layerReplay\": {\"timeS\": %.6g, \"busiestStreamS\": %.6g, \"isGraph\": %s, ", replay.seconds,
              replay.busiest_stream_s, replay.is_graph ? "true" : "false");
  std::printf("\"ratio\": %.4f, \"target\": %.2f, \"holds\": %s},\n", ratio, kReplayTarget,
              replay.is_graph && ratio <= kReplayTarget ? "true" : "false");
}

void Print(const cudaDeviceProp& card, double copy_bytes_per_s, const LayerReplay& replay,
           const std::vector<Measured>& results) {
  int driver = 0;
  CheckOk(StatusOf(cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
  std::printf("{\n  \"card\": \"%s\",\n  \"computeCapability\": \"%d.%d\",\n  \"multiprocessors\": %d,\n", card.name,
              card.major, card.minor, card.multiProcessorCount);
  std::printf("  \"cudaRuntime\": %d,\n  \"cudaDriver\": %d,\n  \"copyBytesPerS\": %.6g,\n", CUDART_VERSION, driver,
              copy_bytes_per_s);
  Print(replay);
  std::printf("  \"kernels\": [\n");
  for (size_t i = 0; i < results.size(); ++i) {
    const Measured& result = results[i];
    std::printf("    {\"name\": \"%s\", \"timeS\": %.6g", result.name.c_str(), result.seconds);
    if (result.bytes > 0) std::printf(", \"bytes\": %.0f", result.bytes);
    if (result.flops > 0) std::printf(", \"flopsPerS\": %.6g", result.flops / result.seconds);
    if (result.share > 0) std::printf(", \"share\": %.4f", result.share);
    if (result.target > 0) {
      std::printf(", \"target\": %.2f, \"holds\": %s", result.target, result.share >= result.target ? "true" : "false");
    }
    std::printf("}%s\n", i + 1 < results.size() ? "," : "");
  }
  std::printf("  ]\n}\n");
}

int Main(bool only_names_card) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    std::fprintf(stderr, "gpu_bench: no GPU\n");
    return 2;
  }
  cudaDeviceProp card;
  CheckOk(StatusOf(cudaGetDeviceProperties(&card, 0), "cudaGetDeviceProperties"));
  if (only_names_card) {
    std::puts(card.name);
    return 0;
  }
  {
    auto device = MakeCudaDevice({});
    CheckOk(device.status());
    CheckOk(SettleClocks(**device));
  }
  std::vector<Measured> results;
  const double copy_bytes_per_s = CopyBytesPerSecond();
  MeasureRows(copy_bytes_per_s, results);
  MeasureCodecs(copy_bytes_per_s, results);
  MeasureGate(copy_bytes_per_s, results);
  MeasureGemm(results);
  Print(card, copy_bytes_per_s, MeasureLayerReplay(), results);
  return 0;
}

}  // namespace
}  // namespace moeplan::executor::cuda

int main(int count, char** arguments) {
  return moeplan::executor::cuda::Main(count > 1 && std::string_view(arguments[1]) == "--card");
}
