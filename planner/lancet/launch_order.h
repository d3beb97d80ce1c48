// The launch order of a training step after Lancet's two passes.
//
// Ranges stand where they stood, cut into stages, and so do their ways back (planner/lancet/way_back.h). A weight
// gradient that is to cover an all-to-all is launched right after it (Lancet §4.2), or after its first part; what it
// still needs is launched just before it, what needs it as soon as it can be. Everything else keeps its place. Pure
// functions.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "planner/lancet/timeline.h"

namespace moeplan::planner {

struct GradientPlace {
  int gradient = 0, exchange = 0;  // Instructions.

  friend bool operator==(const GradientPlace&, const GradientPlace&) = default;
};

// Nothing where no order satisfies all places at once. Requires ranges in the given order that do not overlap, and
// gradients outside them.
std::optional<std::vector<PartLaunch>> LaunchOrder(const TimedGraph& graph, std::span<const CutRange> ranges,
                                                   std::span<const GradientPlace> places);

}  // namespace moeplan::planner
