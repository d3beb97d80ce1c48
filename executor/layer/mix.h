// A hash of whole numbers: what keyed random values are made of.
#pragma once

#include <cstdint>

#include "models/host_and_device.h"

namespace moeplan::executor {

// splitmix64's finaliser: neighbouring values give independent-looking ones.
MOEPLAN_HD inline uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace moeplan::executor
