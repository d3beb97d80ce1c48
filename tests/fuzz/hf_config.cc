// The config.json of a Hugging Face model.
#include "models/model/hf_config.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "models/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeplan;
  const StatusOr<ModelConfig> model = ModelFromHfConfig({reinterpret_cast<const char*>(data), size}, "file");
  if (!model.ok()) {
    MOEPLAN_CHECK(model.status().code() == StatusCode::kInvalidInput && !model.status().message().empty());
    return 0;
  }
  MOEPLAN_CHECK(model->layers() >= 1 && model->model_dim >= 1 && model->heads >= 1 && model->kv_heads >= 1);
  MOEPLAN_CHECK(model->heads % model->kv_heads == 0);
  MOEPLAN_CHECK(model->moe_layers() >= 0 && model->moe_layers() <= model->layers());
  MOEPLAN_CHECK(model->experts == 0 || (model->top_k >= 1 && model->top_k <= model->experts));
  const double parameters = TotalDenseParameters(*model) + TotalExpertParameters(*model);
  MOEPLAN_CHECK(std::isfinite(parameters) && parameters > 0);
  return 0;
}
