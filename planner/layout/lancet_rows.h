// Prices the layouts that a ranking lists under Lancet's passes, too, and puts those first that are then the fastest.
#pragma once

#include <stop_token>

#include "models/cost/profile.h"
#include "models/layout/layout_answer.h"
#include "models/status.h"

namespace moeplan::planner {

// Each row that takes less time under the passes, and fits, becomes that row, and all are sorted anew by their steps. A
// plan of its stages takes tens of milliseconds a row, so layouts that the ranking does not list are not tried, and a
// warning says so. Where graphs cannot have what the request asks for, no row changes, and a warning names the field.
//
// kCancelled. Requires an answer to the request from RankLayouts with the same profile. The same arguments give the
// same answer, on so many threads.
Status TryLancet(const LayoutRequest& request, const Profile& profile, int threads, LayoutAnswer& answer,
                 std::stop_token cancelled = {});

}  // namespace moeplan::planner
