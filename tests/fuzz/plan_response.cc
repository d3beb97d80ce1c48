// A plan as `plan` prints it and `run` reads it, of a workload or of a training graph.
#include "proto/convert/plan.h"
#include "tests/fuzz/fuzzed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeplan;
  FuzzJsonFile<v1::PlanResponse>(TextOf(data, size),
                                 [](const v1::PlanResponse& message) { return PlanAnswerFromProto(message); });
  FuzzJsonFile<v1::PlanResponse>(TextOf(data, size),
                                 [](const v1::PlanResponse& message) { return GraphPlanAnswerFromProto(message); });
  return 0;
}
