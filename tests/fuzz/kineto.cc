// A trace of torch.profiler: read whole, and as graphs that say more of the job than the trace.
#include <string_view>

#include "proto/convert/training_graph.h"
#include "proto/kineto/import.h"
#include "tests/fuzz/fuzzed.h"

namespace moeplan {
namespace {

// A trace is refused, or its graph is valid and survives a file, and its notes are single lines.
void Import(std::string_view text, const KinetoOptions& options) {
  const StatusOr<KinetoImport> import = ImportKineto(kineto::TraceInMemory(text), options);
  if (!import.ok()) return CheckRefusal(import.status());
  MOEPLAN_CHECK(ValidateTrainingGraph(import->graph).ok());
  const StatusOr<TrainingGraph> again = TrainingGraphFromProto(ToProto(import->graph));
  MOEPLAN_CHECK(again.ok() && *again == import->graph);
  MOEPLAN_CHECK(!import->notes.empty());
}

}  // namespace
}  // namespace moeplan

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeplan;
  const std::string_view text = TextOf(data, size);
  Import(text, {});
  Import(text, {.step = 1, .rank = 0, .ranks_per_node = 8, .max_parts = 8});
  return 0;
}
