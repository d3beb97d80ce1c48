// NVIDIA's management library of a machine with one card, at 0000:00:00.0: three NVLinks, one of them down. Its SM
// clock goes up by 100 MHz with each reading, to its maximum.
#include <algorithm>
#include <cstring>

namespace {

int users = 0;
unsigned clock_mhz = 1300;
char card = 0;

int Answer(bool known) { return known ? 0 : 2; }

}  // namespace

extern "C" {

int nvmlInit_v2() {
  ++users;
  return 0;
}
int nvmlShutdown() {
  --users;
  return 0;
}
// Not NVIDIA's: how many have begun and not ended.
int FakeNvmlUsers() { return users; }

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  std::strncpy(version, "580.65.06", length);
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** handle) {
  *handle = &card;
  return Answer(std::strcmp(bus, "0000:00:00.0") == 0);
}

#ifndef FAKE_NVML_KNOWS_LITTLE
int nvmlDeviceGetClockInfo(void*, unsigned which, unsigned* mhz) {
  *mhz = 3201;
  if (which == 1) *mhz = clock_mhz = std::min(clock_mhz + 100, 1980u);
  return Answer(which == 1 || which == 2);
}
int nvmlDeviceGetMaxClockInfo(void*, unsigned which, unsigned* mhz) {
  *mhz = which == 1 ? 1980 : 3201;
  return Answer(which == 1 || which == 2);
}
int nvmlDeviceGetEccMode(void*, unsigned* now, unsigned* after_restart) {
  *now = 1;
  *after_restart = 0;
  return 0;
}
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  *milliwatts = 700000;
  return 0;
}
int nvmlDeviceGetCurrPcieLinkGeneration(void*, unsigned* generation) {
  *generation = 5;
  return 0;
}
int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned* lanes) {
  *lanes = 16;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = 0x4 | 0x20;
  return 0;
}
int nvmlDeviceGetNvLinkState(void*, unsigned link, unsigned* up) {
  *up = link != 1;
  return Answer(link < 3);
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned link, unsigned* kind) {
  *kind = link == 0 ? 2 : 0;
  return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, char* info) {
  std::memset(info, 0, 68);
  std::strcpy(info + 36, "00000000:01:00.0");
  return 0;
}
#endif

}  // extern "C"
