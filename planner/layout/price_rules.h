// Pricing a step assumes these numbers beside a profile: they were measured elsewhere, or chosen on kernels that were.
// `moeplan reproduce steps --perturb` changes each of them but the error ratios of dispatchers, which move intervals
// alone. Values only.
#pragma once

#include "models/cost/shape_surface.h"
#include "planner/layout/dispatch_cost.h"

namespace moeplan::planner {

struct PriceRules {
  SurfaceRules surface;
  DispatchFigures dispatch;
};

}  // namespace moeplan::planner
