// Models, hardware and tables of training systems by name, where they ship with the program (deploy/models,
// deploy/hardware, deploy/targets). An error begins with the field of a request that gives the name.
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

namespace moeplan::planner {

// The model of that name, and the text of its config.json. kInvalidInput: none ships ("modelName"), and the message
// lists the names.
StatusOr<ModelConfig> NamedModel(const std::string& name);
StatusOr<std::string_view> NamedModelText(const std::string& name);
// The names of all models that ship, "deepseek-v3, gpt-oss-120b, ...".
std::string ModelNamesText();

// The models that GPUs are calibrated for when nobody names one (deploy/model_names.json). All ship.
const std::vector<std::string>& UsualModels();

// The hardware of that name. kInvalidInput: none ships ("hardware"), and the message lists the names.
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

// A profile of NAME or NAME:DOMAINSxGPUS for so many GPUs in all, joined by the network; without the suffix domains are
// as large as divides the GPUs. kInvalidInput also: the suffix is no such text, or does not come to that many GPUs
// ("gpus" where these are none).
StatusOr<Profile> HardwareProfile(const std::string& text, int gpus, const ModelConfig& model,
                                  const std::function<void(Hardware&)>& change = {}, const Network& network = {});

// The GPUs that NAME:DOMAINSxGPUS comes to; 0: the text has no such suffix.
int GpusOfHardware(const std::string& text);

// The table of a training system for a version, or for the latest that there is where none is named. kInvalidInput: no
// table ships of that name ("to") or for that version ("targetVersion"), and the message lists what does.
StatusOr<Target> TargetOf(const std::string& name, const std::string& version);
// The names of all that ship, sorted, and as "deepspeed, megatron, ...".
std::vector<std::string> TargetNames();
std::string TargetNamesText();

}  // namespace moeplan::planner
