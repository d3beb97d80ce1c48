// Times of the parts of a step where they run beside each other, from steps that did.
//
// The time of a part in a graph is that of the part alone. A job whose step runs in parts has more to pay, such as
// kernels of two parts that share a device and waits for rows of each part, and less, where one part's waiting is
// another's work. Where a graph has steps that were measured in 2 and more parts (TrainingGraph::measured_steps), the
// times of all parts of that number are multiplied by one factor, so that the timeline of the same range, over that of
// the step as it is, is the measured ratio.
//
// A factor below 1 is for all-to-alls, for what stands with one in a layer (Instruction::layer), and for the ways back
// of both; other parts then take what they take alone. Nothing but an exchange has less to do in parts, by the rows
// that nobody sends and by what the waiting of one part leaves to another, and a product that is cut by itself, in a
// range without any, saves nothing. Pure functions. Seconds.
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
  std::map<int, double> factors;  // What times of parts are multiplied by, as above, by measured number of parts.
};

// Other numbers of parts have a factor between those of the next fewer and the next more that were measured, on a
// straight line of logarithms; beyond, that of the last one. Steps of more than the graph's most parts do not count,
// nor do those whose range cannot be cut, which a remark names. A factor is at least 1/8, or 1 where the range has no
// all-to-all, and at most 8, and a remark says where that is not enough; the timeline meets the measured end within
// 1e-6, of the largest graphs within some percent. Times that come from the profile stay. Errors of TimeGraph;
// kCancelled. Requires a validated graph.
StatusOr<PartsAsRun> WithPartsAsRun(const TrainingGraph& graph, const Profile* profile, PriceNotes& notes,
                                    const std::stop_token& cancelled = {});

}  // namespace moeplan::planner
