// A profile of the measurements that SimuMax publishes of a machine: kernels by shape, and constants of what moves
// memory and of collectives.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cli/csv.h"
#include "cli/reproduce/steps/constants.h"
#include "cli/reproduce/steps/data_folder.h"
#include "models/cost/profile.h"
#include "models/status.h"

namespace moeplan::cli {

// What rows of the same machine differ in.
struct SimumaxUse {
  bool fused_loss = true;
  int model_dim = 0, experts = 0, top_k = 0;  // Of a model with experts; 0: it has none.
  int gpus_per_node = 1;

  friend auto operator<=>(const SimumaxUse&, const SimumaxUse&) = default;
};

// The word that names of a machine's files and rows begin with: "A100-PCIe-80GB" → "a100".
std::string MachineOf(std::string_view gpu);

// kNotFound: the folder has no simumax_system_MACHINE_*.json or no row of simumax_kernels.csv for it. kInvalidInput:
// a file is not as it should be.
StatusOr<Profile> SimumaxProfile(const DataFolder& folder, const std::string& machine, const SimumaxUse& use,
                                 Constants& constants);

}  // namespace moeplan::cli
