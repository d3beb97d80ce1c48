// The file that the *_perf programs of nccl-tests write with -J, versions 1 and 2.
//
// Checked as far as it is used: `config.devices`, `config.nthreads`, `config.ngpus`, `results`, `out_of_bounds`, and
// args[0], which names the program. The environment that the file carries is not looked at. With several
// threads or GPUs a process, the programs list only the first rank of each process; the others are on its host.
#pragma once

#include <string>
#include <string_view>

#include "proto/nccl_tests/run.h"

namespace moeplan::nccl_tests {

// `path` begins every message; rows are named by their place in `results`. Pure; no exception leaves.
StatusOr<Run> ReadJsonLog(const std::string& path, std::string_view text);

}  // namespace moeplan::nccl_tests
