// Measured and predicted timelines as one Chrome/Perfetto trace.
#pragma once

#include <string>

#include "models/schedule/task_graph.h"
#include "moeplan/v1/plan.pb.h"
#include "moeplan/v1/report.pb.h"

namespace moeplan::agent {

// JSON in the Trace Event Format: process "predicted" and a process for each rank, a thread for each stream, the same
// task names in all, and an arrow for every dependency; microseconds. `graph` holds the tasks that plan and report tell
// the times of.
std::string ChromeTrace(const TaskGraph& graph, const v1::Plan& plan, const v1::RunReport& report);

}  // namespace moeplan::agent
