// Where along one measured curve another size would tell most.
//
// models/measurement/needs.h says what to measure before there is a curve; this says what its curve leaves open.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/cost/cost_model.h"

namespace moeplan {

struct NextSize {
  double size = 0;  // A whole number of bytes or flops.
  std::string why;  // One sentence.

  friend bool operator==(const NextSize&, const NextSize&) = default;
};

inline constexpr size_t kMostNextSizes = 5;

// At most kMostNextSizes, by how much time they may be off by, as a share, most first:
//   inside  the middle, in logs, of a gap between neighbouring sizes: the worse of what its ends miss by when each is
//           left out in turn (the cross-validated median, where a size has no two neighbours), for each doubling of the
//           gap;
//   below   kLeastPlannedBytes, and above kMostPlannedBytes, where bytes are counted and the measured range ends
//           earlier: the same miss for each doubling, at least kUnknownShare, since there the form alone speaks.
// Gaps below kNarrowGap and shares below kWorthwhileShare are left out: there is nothing to be told.
// `measured` are the sizes that were measured, in any order and more than once; those of the curve's points count, too.
// Requires a validated model. Pure and deterministic.
std::vector<NextSize> NextSizes(const CostModel& model, std::span<const double> measured, std::string_view unit);

inline constexpr double kNarrowGap = 1.5;
inline constexpr double kWorthwhileShare = 0.02;
inline constexpr double kUnknownShare = 0.05;

}  // namespace moeplan
