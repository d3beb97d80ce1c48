// Memory of a device for tests, and what they need of it. Against tests/gpu/on_cpu/ the device is the CPU.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "executor/host/elements.h"
#include "executor/host/host_device.h"
#include "executor/host/host_kernels.h"

namespace moeplan::executor::cuda {

inline bool HasDevice() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no GPU";
  }
};

// A copy of values on the device.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(std::span<const T> values) : count_(values.size()) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), std::max<size_t>(1, Bytes())), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), Bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  explicit OnDevice(const std::vector<T>& values) : OnDevice(std::span<const T>(values)) {}
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }

  T* data() const { return data_; }
  // What the device has when it is done.
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, Bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  size_t Bytes() const { return count_ * sizeof(T); }

  size_t count_;
  T* data_ = nullptr;
};

using ByteVector = std::vector<std::byte>;

// What an output holds before it is written: NaN in every type.
inline constexpr std::byte kPoison{0xff};
inline ByteVector Poisoned(size_t bytes) { return ByteVector(bytes, kPoison); }
template <typename T>
std::vector<T> PoisonedValues(size_t count) {
  std::vector<T> values(count);
  std::memset(values.data(), static_cast<int>(kPoison), count * sizeof(T));
  return values;
}

inline ByteVector ElementBytes(const std::vector<float>& values, ElementType type) {
  ByteVector bytes(values.size() * BytesOf(type));
  Store(values.data(), type, values.size(), bytes.data());
  return bytes;
}
inline std::vector<float> ValuesOf(const ByteVector& bytes, ElementType type) {
  std::vector<float> values(bytes.size() / BytesOf(type));
  Load(bytes.data(), type, values.size(), values.data());
  return values;
}

inline int Between(std::mt19937_64& random, int low, int high) {
  return low + static_cast<int>(random() % (high - low + 1));
}
inline std::vector<float> RandomValues(std::mt19937_64& random, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = std::uniform_real_distribution(-2.0F, 2.0F)(random);
  return values;
}
// Some whose rows are whole accesses of 16 bytes, some not; some longer than the threads of a block.
inline int RandomColumns(std::mt19937_64& random) {
  constexpr int kColumns[] = {1, 3, 8, 12, 16, 33, 64, 72, 132, 520};
  return kColumns[random() % std::size(kColumns)];
}

// 1 to 3 chunks, of equal or unequal sizes.
inline ChunkUnits RandomUnits(std::mt19937_64& random) {
  ChunkUnits units = {.chunks = Between(random, 1, 3)};
  units.equal = units.chunks == 1 || random() % 2 == 0;
  for (int chunk = 0; chunk < units.chunks; ++chunk)
    units.first[chunk + 1] = units.first[chunk] + Between(random, 1, 3);
  return units;
}
inline ElementType RandomType(std::mt19937_64& random) {
  return random() % 2 == 0 ? ElementType::kFloat32 : ElementType::kBfloat16;
}

// The host kernels of a layer, to compare with.
class HostReference {
 public:
  explicit HostReference(const Layer& layer, LayerWeights weights = {})
      : weights_(std::move(weights)),
        device_(MakeHostDevice()),
        stream_(device_->MakeStream("reference", StreamPriority::kNormal)),
        kernels_(MakeHostKernels(layer, weights_).value()) {}

  Kernels& kernels() { return *kernels_; }
  Stream& stream() { return *stream_; }
  void Finish() { EXPECT_TRUE(device_->Synchronize().ok()); }

 private:
  const LayerWeights weights_;
  std::unique_ptr<HostDevice> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Kernels> kernels_;
};

}  // namespace moeplan::executor::cuda
