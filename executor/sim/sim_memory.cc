#include "executor/sim/sim_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "executor/host/host_device.h"
#include "executor/sim/errors.h"

namespace moeplan::executor {
namespace {

// The system grants only so many mappings; below, the heap costs less.
constexpr size_t kMappedBytes = 64 << 10;

StatusOr<DeviceMemory> MapMemory(size_t bytes) {
  void* mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, 0);
  if (mapped == MAP_FAILED) return error::NoAddressSpace(bytes);
  return DeviceMemory(static_cast<std::byte*>(mapped), bytes, [bytes](std::byte* data) { munmap(data, bytes); });
}

}  // namespace

SimMemory::SimMemory(int gpus, double device_memory_bytes, bool data)
    : device_memory_bytes_(device_memory_bytes), data_(data) {
  books_->used_bytes.resize(gpus);
}

StatusOr<DeviceMemory> SimMemory::Allocate(int gpu, size_t bytes) {
  double& used = books_->used_bytes[gpu];
  if (used + static_cast<double>(bytes) > device_memory_bytes_) {
    return error::OutOfDeviceMemory(gpu, bytes, used, device_memory_bytes_);
  }
  ASSIGN_OR_RETURN(DeviceMemory memory, bytes < kMappedBytes ? AllocateHostMemory(bytes) : MapMemory(bytes));
  used += static_cast<double>(bytes);
  std::byte* const place = memory.data();
  books_->regions[place] = {bytes, data_};
  const auto owner = std::make_shared<DeviceMemory>(std::move(memory));
  return DeviceMemory(place, bytes, [owner, gpu, bytes, books = books_](std::byte* freed) {
    books->used_bytes[gpu] -= static_cast<double>(bytes);
    books->regions.erase(freed);
  });
}

bool SimMemory::HoldsData(const std::byte* place) const {
  if (data_) return true;
  const Region* region = RegionOf(place);
  return region == nullptr || region->holds_data;
}

void SimMemory::SetHoldsData(const std::byte* place) {
  if (Region* region = RegionOf(place)) region->holds_data = true;
}

SimMemory::Region* SimMemory::RegionOf(const std::byte* place) const {
  auto after = books_->regions.upper_bound(place);
  if (after == books_->regions.begin()) return nullptr;
  auto& [begin, region] = *--after;
  return place < begin + std::max<size_t>(region.bytes, 1) ? &region : nullptr;
}

}  // namespace moeplan::executor
