// Random layers and layouts that resolve, for properties that hold for every schedule.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "models/plan/plan.h"
#include "models/workload/workload.h"

namespace moeplan::testing {

struct Case {
  Workload workload;
  Cluster cluster;
};

std::string Describe(const Case& test);
std::string Describe(const Knobs& knobs);

// Over 1 to 8 ranks, with TP and ESP chosen apart; small, with capacities that drop tokens and ones that do not.
Case RandomCase(std::mt19937_64& random);

// Every candidate that the families of today allow; all-to-alls other than DIRECT with the largest chunk count alone.
std::vector<Knobs> AllKnobs(const Case& test);

}  // namespace moeplan::testing
