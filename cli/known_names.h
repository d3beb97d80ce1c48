// What commands take by name: models and hardware that ship with the program (deploy/models, deploy/hardware).
#pragma once

#include <string>

#include "models/cost/profile.h"
#include "models/hardware/hardware.h"
#include "models/model/model_config.h"
#include "models/status.h"

namespace moeplan::cli {

// The model of that name or, where none ships, of that file. kInvalidInput: neither, and the message lists the names.
StatusOr<ModelConfig> ModelOf(const std::string& name_or_file);

// The hardware of that name. kInvalidInput: none ships, and the message lists the names.
StatusOr<Hardware> HardwareOf(const std::string& name);

// A profile of NAME or NAME:DOMAINSxGPUS for so many GPUs in all; without the suffix domains are as large as divides
// the GPUs. kInvalidInput also: the suffix is no such text, or does not come to that many GPUs.
StatusOr<Profile> HardwareProfile(const std::string& option, int gpus, const ModelConfig& model);

}  // namespace moeplan::cli
