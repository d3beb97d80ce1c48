// The closed form of a pipeline of equal chunks, as the papers' rules use it.
#pragma once

#include <span>

namespace moeplan {

// The time until the last chunk leaves the last stage, when every chunk passes every stage in order and a stage holds
// one chunk at a time: the sum of the stages for the first chunk, then the longest stage once for each further chunk.
// Exact for equal chunks. Contention is not modelled here: it is already in the stage times.
// Seconds in, seconds out; pure, so any thread may call it.
// Requires: at least one stage, chunks >= 1, no negative time.
double PipelineTime(std::span<const double> stage_s, int chunks);

}  // namespace moeplan
