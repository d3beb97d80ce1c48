// The text that the *_perf programs of nccl-tests (and rccl-tests) print, of every version so far.
//
// A run is: lines that begin with '#' and say version, program, ranks; a header that names the columns; rows; a footer.
// Read are tables of 11 to 13 columns (old ones leave out redop and root, and have `error` for `#wrong`), those with
// per-iteration columns, and those with timestamps. A cell may be blank or N/A: it is known by the column that it
// stands under. Tags that mpirun and srun put before lines are taken off. Lines of NCCL itself and of a launcher
// between the rows are passed over; anything else between them is a fault, as are rows without header, times that are
// not in microseconds, CPU times (-C) and wrong results.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/nccl_tests/run.h"

namespace moeplan::nccl_tests {

// The runs of one log in order; runs that never came to a table are left out. `path` begins every message. Pure.
StatusOr<std::vector<Run>> ReadTextLog(const std::string& path, std::string_view text);

}  // namespace moeplan::nccl_tests
