// The seed of random tests.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace moeplan {

// MOEPLAN_TEST_SEED, or one from the machine; printed, so that a run can be repeated.
inline uint64_t TestSeed() {
  const char* given = std::getenv("MOEPLAN_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("seed %llu (MOEPLAN_TEST_SEED repeats it)\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace moeplan
