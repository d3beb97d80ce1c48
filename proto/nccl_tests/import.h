// Measurements that nccl-tests (or rccl-tests) took, as samples to fit.
//
// alltoall_perf, all_gather_perf, reduce_scatter_perf and all_reduce_perf give ALL_TO_ALL, ALL_GATHER, REDUCE_SCATTER
// and ALL_REDUCE, algorithm DIRECT, without contention. Their `size` column is what our `bytes` are: the gathered
// output, the input of the reduce-scatter, one rank's whole buffer of the other two. Their groups and hosts come from
// the rank lines; groups that ran side by side must be alike. Lines of one key and size become repeats of one sample,
// whatever their log, data type or reduction. What moeplan does not plan with (other programs, groups of one rank,
// size 0) is left out and named in the notes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/cost/samples.h"
#include "models/status.h"

namespace moeplan {

// One log: text, or what -J writes.
struct NcclTestsLog {
  std::string path;  // Begins messages; may name the program ("h100-all_reduce_perf.log") where the log does not.
  std::string text;
};

struct NcclTestsOptions {
  std::string name;  // Of the samples.
  // The in-place times. Our executor keeps input and output apart, so out of place is the default; nccl-tests has no
  // true in-place all-to-all.
  bool in_place = false;
  std::optional<Collective> collective;     // Of logs that do not say.
  std::optional<GroupShape> group;          // Of logs without rank lines.
  std::optional<int> nodes, gpus_per_node;  // Of the cluster, where the logs show only a part of it.
  int ctas = 0;                             // NCCL_MAX_CTAS of the runs, which no log tells; 0: not set.
};

struct NcclTestsImport {
  SampleSet samples;               // Valid (ValidateSamples).
  std::vector<std::string> notes;  // What was left out, for a person.
};

// Reads all logs. The cluster is the most nodes, and the most GPUs on a node, that a log shows, unless the options say
// more. Samples are sorted by key and size. kInvalidInput with one line for each line that is wrong, with its file and
// number; also when logs are of different devices, say no program or no ranks, or nothing is left. A line whose size,
// count, time and bandwidth cannot be of one measurement is wrong, too. Pure.
StatusOr<NcclTestsImport> ImportNcclTests(std::span<const NcclTestsLog> logs, const NcclTestsOptions& options);

}  // namespace moeplan
