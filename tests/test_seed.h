// The seed of random tests.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <random>

namespace moeplan {

// MOEPLAN_TEST_SEED, or one from the machine; printed, so that a run can be repeated.
inline unsigned TestSeed() {
  const char* given = std::getenv("MOEPLAN_TEST_SEED");
  const unsigned seed =
      given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device()();
  std::printf("seed %u (MOEPLAN_TEST_SEED repeats it)\n", seed);
  return seed;
}

}  // namespace moeplan
