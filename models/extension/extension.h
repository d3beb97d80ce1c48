// What a program may add to moeplan: all-to-all algorithms, codecs, kinds of expert, schedules. docs/extending.md walks
// through an example of each.
//
// What is added is then like what is built in: calibrations measure it, the planner weighs it against the rest, the
// executor runs it, and its name stands in files, messages and databases. Every process that meets the name must have
// added it. Names are registered at the start of a program, before the first of them is read (models/registry.h), and
// are never removed. A training job calls these functions; the `moeplan` command and its ranks load them from a library
// (`moeplan COMMAND --extension FILE`) that says
//
//   moeplan::Status Extend() { return moeplan::RegisterCodec({...}).status(); }
//   MOEPLAN_EXTENSION(Extend)
//
// and is compiled against the headers alone: the command has the rest.
#pragma once

#include "models/all_to_all/algorithm.h"
#include "models/schedule/schedules.h"
#include "models/status.h"
#include "models/workload/codec.h"
#include "models/workload/expert.h"

namespace moeplan {

// Each is kInvalidInput, and adds nothing, for a name that is none or is taken, for a part that is missing, and once
// registered names have been read.
StatusOr<AllToAllAlgorithm> RegisterAllToAll(AllToAllDefinition algorithm);
StatusOr<Codec> RegisterCodec(OwnCodec codec);
StatusOr<Family> RegisterSchedule(ScheduleDefinition schedule);
StatusOr<ExpertKind> RegisterExpert(OwnExpert expert);
// F as in ExpertFunctionOf.
template <typename F>
StatusOr<ExpertKind> RegisterExpert(std::string name) {
  return RegisterExpert({.name = std::move(name), .matrices = F::kMatrices, .function = ExpertFunctionOf<F>()});
}

// What a library of extensions has to offer, under the name "moeplan_extension" (cli/extensions.h loads it).
struct ExtensionLibrary {
  const char* version;  // Of the headers it was compiled against.
  Status (*extend)();
};

}  // namespace moeplan

#define MOEPLAN_EXTENSION(function)                                                                    \
  extern "C" __attribute__((visibility("default"))) const moeplan::ExtensionLibrary moeplan_extension; \
  const moeplan::ExtensionLibrary moeplan_extension = {MOEPLAN_VERSION, function};
