// What parts of a step take where they run beside each other, from steps that did.
//
// The time of a part in a graph is that of the part alone. A job whose step runs in parts has more to pay, such as
// kernels of two parts that share a device and waits for what each part brings, and less, where one part's waiting is
// another's work. Where a graph has steps that were measured in 2 and more parts (TrainingGraph::measured_steps), the
// times of all parts of that number are taken so many times that the timeline of the same range, over that of the step
// as it is, is what was measured. Pure functions. Seconds.
#pragma once

#include <map>
#include <stop_token>

#include "models/cost/profile.h"
#include "models/status.h"
#include "models/timeline/pricer.h"
#include "models/training/training_graph.h"

namespace moeplan::planner {

struct PartsAsRun {
  TrainingGraph graph;            // With times of parts as they are in steps; without measured steps.
  std::map<int, double> factors;  // By the number of parts: what their times were multiplied by. Empty: none were.
};

// A factor lies between those of the next fewer and the next more parts that were measured, on a straight line of
// logarithms, and is the last one beyond. Steps of more than the graph's most parts do not count, nor do those whose
// range cannot be cut, which a remark names; a factor is at least 1/8 and at most 8, within 3e-7 of itself, of large
// graphs within 2 %. Times that come from the profile stay. Errors of TimeGraph; kCancelled. Requires a validated
// graph.
StatusOr<PartsAsRun> WithPartsAsRun(const TrainingGraph& graph, const Profile* profile, PriceNotes& notes,
                                    const std::stop_token& cancelled = {});

}  // namespace moeplan::planner
