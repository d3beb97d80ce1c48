// Reads the config.json of a Hugging Face model.
//
// The names differ from family to family, so a field is looked for under all of them: Mixtral, Qwen2-MoE, Qwen3-MoE,
// OLMoE, DeepSeek-V2 and -V3, GLM-4.5, gpt-oss, DBRX, Llama 4, Granite-MoE, ERNIE 4.5, PhiMoE, MiniMax, Switch
// Transformers and NLLB-MoE are read whole. A dense config is read too (experts is 0), and one of another model with
// the experts' fields of these added, such as GPT-2 with num_experts, num_experts_per_tok and decoder_sparse_step.
//
// A library of its own, moeplan::hf_config, because it needs nlohmann/json and models does not.
#pragma once

#include <string_view>

#include "models/model/model_config.h"
#include "models/status.h"

namespace moeplan {

inline constexpr size_t kMaxHfConfigBytes = size_t{16} << 20;

// `source_name` (the file) begins every error, the field's name follows. kInvalidInput: not JSON, not an object, a
// field missing, of a wrong type or size, or layers that are not understood (Mamba's, or a list of another length).
// Pure; no exception leaves, whatever the bytes.
StatusOr<ModelConfig> ModelFromHfConfig(std::string_view text, std::string_view source_name);

}  // namespace moeplan
