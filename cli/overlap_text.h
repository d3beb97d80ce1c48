// Two micro-batches beside each other, as lines of a terminal.
#pragma once

#include <string>

#include "models/timeline/task_timing.h"

namespace moeplan::cli {

// A row for compute and one for exchanges, one letter a task for as long as it runs, with what the letters mean:
// 80 columns at most. Requires a timeline of planner::OverlapTimeline.
std::string OverlapText(const Timeline& timeline);

}  // namespace moeplan::cli
