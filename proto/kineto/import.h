// A training graph from a trace that torch.profiler (Kineto) wrote of one rank of a job.
//
// A trace has no tensors, so the graph keeps the order of the program wherever the trace does not show that two things
// are independent (proto/kineto/instructions.h, docs/lancet.md "The graph of a trace").
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/status.h"
#include "models/training/training_graph.h"
#include "proto/kineto/trace_text.h"

namespace moeplan {

struct KinetoOptions {
  std::optional<int> step;            // ProfilerStep#N; absent: the last whole one.
  std::optional<int> rank;            // The trace's, for traces that do not say it.
  std::optional<int> ranks_per_node;  // The job's; absent: collectives have no ranksPerNode.
  int max_parts = 1;                  // The most parts of a range.
};

struct KinetoImport {
  TrainingGraph graph;             // Valid (ValidateTrainingGraph).
  std::vector<std::string> notes;  // They tell a person what was taken and what was not.
};

// kInvalidInput without the trace's name: an option is out of range, `rank` is not the trace's, or the trace is not to
// be read (proto/kineto/read_events.h) or has no work. Reads the trace twice; keeps one step's events in memory.
StatusOr<KinetoImport> ImportKineto(const kineto::OpenTrace& open, const KinetoOptions& options);

}  // namespace moeplan
