#include "executor/cuda/card_facts.h"

#include <array>
#include <chrono>
#include <optional>

#include "executor/cuda/errors.h"
#include "executor/cuda/settle_watch.h"

namespace moeplan::executor::cuda {
namespace {

using Clock = std::chrono::steady_clock;

std::optional<std::string> PciBusOf(int card) {
  std::array<char, 32> bus{};
  if (cudaDeviceGetPCIBusId(bus.data(), bus.size(), card) == cudaSuccess) return bus.data();
  cudaGetLastError();
  return std::nullopt;
}

// As nvidia-smi writes it.
std::string TextOf(const cudaUUID_t& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kDigits[byte / 16];
    text += kDigits[byte % 16];
  }
  return text;
}

// 13000 is 13.0.
std::string TextOfVersion(int version) { return StrCat(version / 1000, ".", version % 1000 / 10); }

// Work of a few milliseconds, the same each time.
class BusyWork {
 public:
  static StatusOr<BusyWork> Make(CudaDevice& device) {
    BusyWork work(device);
    ASSIGN_OR_RETURN(work.memory_, device.Allocate(kBytes));
    return work;
  }

  // For `time_s`; answers how long the work took each time.
  StatusOr<double> RunFor(double time_s) {
    const Clock::time_point begin = Clock::now();
    for (int runs = 1;; ++runs) {
      for (int i = 0; i < kCopies; ++i)
        device_->Copy(memory_.data() + kBytes / 2, memory_.data(), kBytes / 2, *stream_);
      RETURN_IF_ERROR(device_->Await(*stream_));
      const double passed_s = std::chrono::duration<double>(Clock::now() - begin).count();
      if (passed_s >= time_s) return passed_s / runs;
    }
  }

 private:
  static constexpr size_t kBytes = size_t{64} << 20;
  static constexpr int kCopies = 16;

  explicit BusyWork(CudaDevice& device)
      : device_(&device), stream_(device.MakeStream("SETTLE", StreamPriority::kNormal)) {
    device.Label(*stream_, "settle clocks");
  }

  CudaDevice* device_;
  DeviceMemory memory_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace

std::map<std::string, std::string> CardFacts(int card, const std::string& nvml_library) {
  std::map<std::string, std::string> facts;
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, card) == cudaSuccess) {
    facts = {{"device", properties.name},
             {"computeCapability", StrCat(properties.major, ".", properties.minor)},
             {"memoryBytes", StrCat(properties.totalGlobalMem)},
             {"multiprocessors", StrCat(properties.multiProcessorCount)},
             {"l2Bytes", StrCat(properties.l2CacheSize)},
             {"uuid", TextOf(properties.uuid)}};
  } else {
    cudaGetLastError();
  }
  int version = 0;
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) facts["cudaRuntime"] = TextOfVersion(version);
  if (cudaDriverGetVersion(&version) == cudaSuccess && version > 0) facts["cudaDriver"] = TextOfVersion(version);
  const std::optional<std::string> bus = PciBusOf(card);
  if (bus) facts["pciBus"] = *bus;
  const std::unique_ptr<Nvml> nvml = Nvml::Open(nvml_library);
  if (nvml == nullptr) {
    facts["nvml"] = "not found";
  } else if (bus) {
    facts.merge(nvml->FactsOf(*bus));
  }
  return facts;
}

Status SettleClocks(CudaDevice& device, double limit_s, const std::string& nvml_library) {
  // NVML's readings are some milliseconds old.
  constexpr double kBetweenReadingsS = 0.02;
  const Clock::time_point begin = Clock::now();
  int card = 0;
  RETURN_IF_ERROR(StatusOf(cudaGetDevice(&card), "the card in use"));
  const std::unique_ptr<Nvml> nvml = Nvml::Open(nvml_library);
  const std::string bus = PciBusOf(card).value_or("");
  ASSIGN_OR_RETURN(BusyWork work, BusyWork::Make(device));
  SettleWatch watch;
  while (Clock::now() - begin < std::chrono::duration<double>(limit_s)) {
    ASSIGN_OR_RETURN(const double work_s, work.RunFor(kBetweenReadingsS));
    const std::optional<double> clock_hz = nvml == nullptr ? std::nullopt : nvml->SmClockHz(bus);
    if (watch.IsSettledAt(clock_hz.value_or(work_s))) break;
  }
  return OkStatus();
}

}  // namespace moeplan::executor::cuda
