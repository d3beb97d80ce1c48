#include "executor/cuda/nvml.h"

#include <dlfcn.h>

#include <array>
#include <cstdint>

#include "models/text.h"

namespace moeplan::executor::cuda {
namespace {

// ---- The library's C interface, as far as it is asked. Its header is not needed to build; a function
// keeps its name and form for good, and new forms get new names.
using Device = void*;
using Result = int;
constexpr Result kSuccess = 0;
constexpr unsigned kSmClock = 1, kMemoryClock = 2;
constexpr unsigned kMaxLinks = 18;
constexpr unsigned kToCard = 0, kToSwitch = 2;

struct PciInfo {
  char short_bus[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char pci_bus[32];
};

constexpr struct {
  unsigned long long bit;
  const char* name;
} kThrottles[] = {{0x1, "idle"},
                  {0x2, "applicationClocks"},
                  {0x4, "powerCap"},
                  {0x8, "hardware"},
                  {0x10, "syncBoost"},
                  {0x20, "temperature"},
                  {0x40, "hardwareTemperature"},
                  {0x80, "powerBrake"},
                  {0x100, "displayClocks"}};

std::string NamesOf(unsigned long long throttles) {
  std::string names;
  for (const auto& [bit, name] : kThrottles) {
    if ((throttles & bit) != 0) names += StrCat(names.empty() ? "" : ", ", name);
  }
  return names.empty() ? "nothing" : names;
}

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

class LoadedNvml final : public Nvml {
 public:
  explicit LoadedNvml(void* library) : library_(library) {}
  ~LoadedNvml() override {
    if (running_) Call<>("nvmlShutdown");
  }

  bool Start() {
    running_ = Call<>("nvmlInit_v2") == kSuccess;
    return running_;
  }

  std::map<std::string, std::string> FactsOf(const std::string& pci_bus) const override {
    std::map<std::string, std::string> facts;
    std::array<char, 96> driver{};
    if (Call<char*, unsigned>("nvmlSystemGetDriverVersion", driver.data(), driver.size() - 1) == kSuccess)
      facts["driver"] = driver.data();
    Device card = nullptr;
    if (!Find(pci_bus, card)) return facts;
    const auto tell = [&](const char* name, const std::optional<unsigned>& value) {
      if (value) facts[name] = StrCat(*value);
    };
    const auto tell_clock = [&](const char* name, const std::optional<unsigned>& clock_mhz) {
      if (clock_mhz) facts[name] = StrCat(*clock_mhz * kMhz);
    };
    tell_clock("smClockHz", Clock("nvmlDeviceGetClockInfo", card, kSmClock));
    tell_clock("smClockMaxHz", Clock("nvmlDeviceGetMaxClockInfo", card, kSmClock));
    tell_clock("memoryClockHz", Clock("nvmlDeviceGetClockInfo", card, kMemoryClock));
    tell_clock("memoryClockMaxHz", Clock("nvmlDeviceGetMaxClockInfo", card, kMemoryClock));
    tell("pcieGeneration", Number("nvmlDeviceGetCurrPcieLinkGeneration", card));
    tell("pcieLanes", Number("nvmlDeviceGetCurrPcieLinkWidth", card));
    if (const auto limit_mw = Number("nvmlDeviceGetEnforcedPowerLimit", card))
      facts["powerLimitW"] = StrCat(*limit_mw * 1e-3);
    unsigned now = 0, after_restart = 0;
    if (Call<Device, unsigned*, unsigned*>("nvmlDeviceGetEccMode", card, &now, &after_restart) == kSuccess)
      facts["ecc"] = now != 0 ? "on" : "off";
    unsigned long long throttles = 0;
    if (Call<Device, unsigned long long*>("nvmlDeviceGetCurrentClocksThrottleReasons", card, &throttles) == kSuccess)
      facts["clocksThrottledBy"] = NamesOf(throttles);
    TellLinks(card, facts);
    return facts;
  }

  std::optional<double> SmClockHz(const std::string& pci_bus) const override {
    Device card = nullptr;
    if (!Find(pci_bus, card)) return std::nullopt;
    const std::optional<unsigned> clock_mhz = Clock("nvmlDeviceGetClockInfo", card, kSmClock);
    if (!clock_mhz) return std::nullopt;
    return static_cast<double>(*clock_mhz * kMhz);
  }

 private:
  static constexpr uint64_t kMhz = 1'000'000;

  // Any other number than kSuccess where there is no such function.
  template <typename... Arguments>
  Result Call(const char* name, Arguments... arguments) const {
    void* const function = dlsym(library_.get(), name);
    return function == nullptr ? -1 : reinterpret_cast<Result (*)(Arguments...)>(function)(arguments...);
  }

  bool Find(const std::string& pci_bus, Device& card) const {
    return Call<const char*, Device*>("nvmlDeviceGetHandleByPciBusId_v2", pci_bus.c_str(), &card) == kSuccess;
  }
  std::optional<unsigned> Number(const char* name, Device card) const {
    unsigned value = 0;
    return Call<Device, unsigned*>(name, card, &value) == kSuccess ? std::optional(value) : std::nullopt;
  }
  std::optional<unsigned> Clock(const char* name, Device card, unsigned which) const {
    unsigned value = 0;
    return Call<Device, unsigned, unsigned*>(name, card, which, &value) == kSuccess ? std::optional(value)
                                                                                    : std::nullopt;
  }

  void TellLinks(Device card, std::map<std::string, std::string>& facts) const {
    int up = 0;
    bool known = false;
    std::map<std::string, int> peers;
    for (unsigned link = 0; link < kMaxLinks; ++link) {
      unsigned state = 0;
      if (Call<Device, unsigned, unsigned*>("nvmlDeviceGetNvLinkState", card, link, &state) != kSuccess) continue;
      known = true;
      if (state == 0) continue;
      ++up;
      ++peers[PeerOf(card, link)];
    }
    if (!known) return;
    facts["nvlinks"] = StrCat(up);
    std::string text;
    for (const auto& [peer, links] : peers) text += StrCat(text.empty() ? "" : ", ", links, " to ", peer);
    if (up > 0) facts["nvlinkPeers"] = text;
  }

  std::string PeerOf(Device card, unsigned link) const {
    unsigned kind = kToCard;
    (void)Call<Device, unsigned, unsigned*>("nvmlDeviceGetNvLinkRemoteDeviceType", card, link, &kind);
    if (kind == kToSwitch) return "switches";
    PciInfo info{};
    if (Call<Device, unsigned, PciInfo*>("nvmlDeviceGetNvLinkRemotePciInfo_v2", card, link, &info) != kSuccess)
      return "unknown";
    info.pci_bus[sizeof info.pci_bus - 1] = '\0';
    return info.pci_bus;
  }

  const std::unique_ptr<void, CloseLibrary> library_;
  bool running_ = false;
};

}  // namespace

std::unique_ptr<Nvml> Nvml::Open(const std::string& library) {
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) return nullptr;
  auto nvml = std::make_unique<LoadedNvml>(loaded);
  if (!nvml->Start()) return nullptr;
  return nvml;
}

}  // namespace moeplan::executor::cuda
