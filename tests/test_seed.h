// The seed of random tests.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace moeplan {

// The same on every run, so that a red test blames the change under test; MOEPLAN_TEST_SEED gives another. Printed, so
// that the run can be repeated. tests/rotating_seeds.sh looks for what no fixed seed finds.
inline uint64_t TestSeed() {
  constexpr uint64_t kFixed = 20261124;
  const char* given = std::getenv("MOEPLAN_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : kFixed;
  std::printf("seed %llu (MOEPLAN_TEST_SEED repeats it)\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace moeplan
