// `moeplan what-if --layout`: which dispatcher is the fastest for a layout, and where that changes.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "models/status.h"

namespace moeplan::cli {

struct DispatcherOptions {
  std::string model, layout, dispatchers;  // The last: names with commas; empty: all.
  int gpus = 0, global_batch = 0, sequence_length = 0;
};

// `sweep` is "PATH=VALUE,VALUE,..." of microBatch, expertParallel, gpus or expertImbalance.
Status CompareDispatchers(const DispatcherOptions& options, const SourceOption& source,
                          const std::vector<std::string>& sweep, bool json);

}  // namespace moeplan::cli
