// Random layers and layouts that resolve, for properties that hold for every schedule.
#pragma once

#include <array>
#include <random>
#include <string>
#include <vector>

#include "models/schedule/knobs.h"
#include "models/workload/workload.h"

namespace moeplan::testing {

struct Case {
  Workload workload;
  Cluster cluster;
  int hot_expert = -1;                            // Towards which the tokens lean; -1: none.
  std::array<int, 4> chunk_units = {1, 3, 2, 1};  // Of the unequal chunks of its schedules.
};

inline constexpr uint64_t kWeightSeed = 7;

std::string Describe(const Case& test);
std::string Describe(const Knobs& knobs);

// The input of a source batch, whose tokens lean towards the hot expert where there is one.
std::vector<float> InputOf(const Case& test, int batch);

// Over 1 to 8 ranks, with TP and ESP chosen apart; FORWARD or TRAINING; every gate; biases, a shared expert and losses
// of the router or none; small, with capacities that drop tokens and ones that do not, and some with a hot expert,
// which leaves others without a token.
Case RandomCase(std::mt19937_64& random);

// Every candidate that the families of today allow; all-to-alls other than DIRECT with the largest chunk count alone;
// unequal chunks of the case's sizes, with the largest chunk count.
std::vector<Knobs> AllKnobs(const Case& test);

}  // namespace moeplan::testing
