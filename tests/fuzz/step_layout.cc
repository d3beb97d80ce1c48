// LAYOUT.json of `moeplan step`, and the settings that `moeplan layout` takes from the same fields.
#include "proto/convert/step.h"

#include "tests/fuzz/fuzzed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeplan;
  const StatusOr<v1::StepLayout> layout = StepLayoutFromJson(TextOf(data, size), "file");
  if (!layout.ok()) {
    CheckRefusal(layout.status());
    return 0;
  }
  LayoutRequest request = {.gpus = 64, .global_batch = 64, .sequence_length = 4096};
  request.model.moe_layer = {false, true, true, true};
  request.model.experts = 8;
  request.model.top_k = 2;
  StepQuestion question = {.request = request};
  if (const Status read = ReadStepLayout(*layout, "layout", question); !read.ok()) CheckRefusal(read);
  if (const Status read = ReadSettings(*layout, "settings", request); !read.ok()) CheckRefusal(read);
  return 0;
}
