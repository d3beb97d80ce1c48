// Times of kernels on a card. CUDA calls that fail end the program with their name.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "models/status.h"

namespace moeplan::executor::cuda {

void CheckOk(const Status& status);

// Random bits in [0, 1) as floats or BF16, or nothing but what bytes they are; on the device until the end.
class BenchMemory {
 public:
  explicit BenchMemory(size_t bytes);
  BenchMemory(const BenchMemory&) = delete;
  BenchMemory& operator=(const BenchMemory&) = delete;
  ~BenchMemory();

  template <typename T>
  T* As() const {
    return reinterpret_cast<T*>(data_);
  }
  std::byte* data() const { return data_; }
  // Copies a pattern of values over it, so that nothing is measured on zeros.
  template <typename T>
  void Fill(const std::vector<T>& pattern) const {
    FillBytes(reinterpret_cast<const std::byte*>(pattern.data()), pattern.size() * sizeof(T));
  }

 private:
  void FillBytes(const std::byte* pattern, size_t pattern_bytes) const;

  std::byte* data_ = nullptr;
  size_t bytes_;
};

// The seconds of one run on a busy card: runs in a row are a CUDA graph, as tasks of a layer are, and the graph is
// launched again and again; the median of the launches. So neither the host's launches count nor the card's way out of
// idleness, which takes longer than a small kernel. Buffers are to be several times the second-level cache.
double MedianSeconds(const std::function<void(cudaStream_t)>& run);
// The same of runs that are queued on a stream one behind the other.
double MedianSecondsQueued(const std::function<void(cudaStream_t)>& run);

struct Measured {
  std::string name;
  double seconds = 0;
  double bytes = 0;  // Read and written, each once; 0 where a product is measured.
  double flops = 0;
  double share = 0;   // Of the rate of a large copy, or of one product of the same flops.
  double target = 0;  // Of the share; 0: none.
};

// A layer's forward pass on one rank, again and again, and what its busiest stream does in that time.
struct LayerReplay {
  double seconds = 0;           // Of one run, from the start of the first of several in a row to the end of the last.
  double busiest_stream_s = 0;  // Sum of the times of its tasks, which begin and end on the card.
  bool is_graph = false;        // Else the work is queued anew at each run.
};
inline constexpr double kReplayTarget = 1.05;  // Of seconds over busiest_stream_s.
LayerReplay MeasureLayerReplay();

void MeasureRows(double copy_bytes_per_s, std::vector<Measured>& results);
void MeasureCodecs(double copy_bytes_per_s, std::vector<Measured>& results);
void MeasureGate(double copy_bytes_per_s, std::vector<Measured>& results);
void MeasureGemm(std::vector<Measured>& results);

inline Measured OfCopy(const std::string& name, double seconds, double bytes, double copy_bytes_per_s, double target) {
  return {
      .name = name, .seconds = seconds, .bytes = bytes, .share = bytes / seconds / copy_bytes_per_s, .target = target};
}

}  // namespace moeplan::executor::cuda
