#include "proto/kineto/import.h"

#include <utility>

#include "models/text.h"
#include "proto/kineto/instructions.h"
#include "proto/kineto/read_events.h"
#include "proto/kineto/report.h"

namespace moeplan {
namespace {

constexpr int kMostRanks = 1 << 20;

Status CheckRange(const char* option, int value, int least, int most) {
  if (value >= least && value <= most) return OkStatus();
  return InvalidInput(StrCat(option, ": found ", value, ", expected a whole number of ", least, " to ", most));
}

Status CheckOptions(const KinetoOptions& options) {
  RETURN_IF_ERROR(CheckRange("--max-parts", options.max_parts, 1, kMostParts));
  if (options.step) RETURN_IF_ERROR(CheckRange("--step", *options.step, 0, 1 << 30));
  if (options.rank) RETURN_IF_ERROR(CheckRange("--rank", *options.rank, 0, kMostRanks));
  if (options.ranks_per_node) RETURN_IF_ERROR(CheckRange("--ranks-per-node", *options.ranks_per_node, 1, kMostRanks));
  return OkStatus();
}

}  // namespace

StatusOr<KinetoImport> ImportKineto(const kineto::OpenTrace& open, const KinetoOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const kineto::Trace trace, kineto::ReadStep(open, options.step));
  if (options.rank && trace.rank && *options.rank != *trace.rank) {
    return InvalidInput(StrCat("--rank: found ", *options.rank, ", expected ", *trace.rank,
                               ", which the trace's distributedInfo says"));
  }
  const kineto::Nesting nesting(trace);
  ASSIGN_OR_RETURN(const kineto::StepWork work, kineto::WorkOf(trace, nesting));
  const kineto::WeightGradients gradients = kineto::FindWeightGradients(trace, nesting, work);
  const kineto::InstructionOptions reading = {.rank = options.rank.value_or(trace.rank.value_or(-1)),
                                              .ranks_per_node = options.ranks_per_node.value_or(0)};
  kineto::Instructions instructions = kineto::InstructionsOf(trace, work, gradients, reading);
  if (instructions.is_too_large) {
    return InvalidInput(StrCat("found a step of more than ", kMostInstructions, " instructions or ", kMostTensors,
                               " tensors, expected a smaller one: profile fewer micro-batches"));
  }
  KinetoImport import;
  import.notes = kineto::NotesOf(trace, work, gradients, instructions, options.ranks_per_node.has_value());
  import.graph.instructions = std::move(instructions.all);
  import.graph.max_parts = options.max_parts;
  RETURN_IF_ERROR(ValidateTrainingGraph(import.graph).Within("the graph of the trace"));
  return import;
}

}  // namespace moeplan
