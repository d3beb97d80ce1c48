// What a search knows of one variant, from the first piece count that it tries to the candidates that it lists.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "models/plan/plan.h"
#include "models/timeline/price.h"
#include "planner/search/candidate.h"

namespace moeplan::planner {

// The time of what has no price.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

struct Tried {
  Knobs variant;  // In one piece.
  int most_pieces = 1;
  bool has_codec = false;
  bool fastest_alone = false;  // Of its piece counts, the fastest alone is listed.

  std::vector<Candidate> priced;        // In equal pieces, by piece count.
  std::vector<Candidate> unequal;       // At most one, where it is the fastest candidate of all.
  std::vector<double> too_large_bytes;  // What the piece counts that do not fit the device need.
  bool given_up = false;                // It cannot be built or priced.
  double fastest_s = kNever;            // Of `priced`.

  // The costs of its graph in one piece, from which bounds follow; absent until a bound is asked for.
  std::optional<std::vector<StreamCost>> whole;
};

}  // namespace moeplan::planner
