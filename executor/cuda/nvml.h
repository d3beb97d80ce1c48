// What NVIDIA's management library (NVML) tells of a card. It comes with the driver and is opened when asked for: no
// program is linked with it, and a machine may lack it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

namespace moeplan::executor::cuda {

inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

// One thread at a time. Cards are named by their PCI bus, as cudaDeviceGetPCIBusId writes it.
class Nvml {
 public:
  virtual ~Nvml() = default;
  // Null: there is no such library here, or it finds no driver.
  static std::unique_ptr<Nvml> Open(const std::string& library = kNvmlLibrary);

  // "driver", and of the card "smClockHz", "smClockMaxHz", "memoryClockHz", "memoryClockMaxHz" (now, and at most),
  // "clocksThrottledBy" (what holds them back now, or "nothing"), "ecc" ("on" or "off"), "powerLimitW",
  // "pcieGeneration", "pcieLanes", "nvlinks" (how many are up) and "nvlinkPeers" (such as "18 to switches", or which
  // cards with how many each). What the library does not tell is absent.
  virtual std::map<std::string, std::string> FactsOf(const std::string& pci_bus) const = 0;
  // Now.
  virtual std::optional<double> SmClockHz(const std::string& pci_bus) const = 0;
};

}  // namespace moeplan::executor::cuda
