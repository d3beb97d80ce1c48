// Commands take models and hardware by name, where they ship with the program (deploy/models, deploy/hardware).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/cost/profile.h"
#include "models/hardware/hardware.h"
#include "models/model/model_config.h"
#include "models/status.h"
#include "planner/targets/target.h"

namespace moeplan::cli {

// The model of that name or, where none ships, of that file, and its text. kInvalidInput: neither, and the message,
// which begins with the option, lists the names.
StatusOr<ModelConfig> ModelOf(const std::string& name_or_file, std::string_view option = "--model");
StatusOr<std::string> ModelTextOf(const std::string& name_or_file, std::string_view option = "--model");

// The models that GPUs are calibrated for when nobody names one (deploy/model_names.json). All ship.
const std::vector<std::string>& UsualModels();

// The hardware of that name. kInvalidInput: none ships, and the message lists the names.
StatusOr<Hardware> HardwareOf(const std::string& name);

// The name of the shipped model, or of the shipped hardware, that a text of someone else means, such as "Qwen3_30B_a3B"
// or "DGX-H100". Letters and digits alone count, and a text may go on behind a model's name. Empty: none.
std::string ModelMeant(std::string_view text);
std::string HardwareMeant(std::string_view text);
// Whether it means a model with state-space layers, which ModelConfig cannot say.
bool MeansHybridModel(std::string_view text);

// "8x8": so many NVLink domains, or nodes, of so many GPUs. Nothing: it is no such text, or one of them is below 1.
struct Domains {
  int domains = 1, gpus = 1;
};
std::optional<Domains> ReadDomains(std::string_view text);

// A profile of NAME or NAME:DOMAINSxGPUS for so many GPUs in all; without the suffix domains are as large as divides
// the GPUs. kInvalidInput also: the suffix is no such text, or does not come to that many GPUs.
StatusOr<Profile> HardwareProfile(const std::string& option, int gpus, const ModelConfig& model,
                                  const std::function<void(Hardware&)>& change = {});

// The GPUs that NAME:DOMAINSxGPUS comes to; 0: the option has no such suffix.
int GpusOfHardware(const std::string& option);

// The table of a training system for a version, or for the latest that there is where none is named. kInvalidInput: no
// table ships of that name or for that version, and the message lists what does.
StatusOr<planner::Target> TargetOf(const std::string& name, const std::string& version);
// The names of all that ship, "deepspeed, megatron, ...".
std::string TargetNames();

}  // namespace moeplan::cli
