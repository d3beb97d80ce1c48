#include "planner/search/drawing.h"

#include <utility>

#include "models/schedule/carry.h"
#include "models/schedule/schedules.h"

namespace moeplan::planner {

Status Drawing::Draw(const Knobs& knobs) {
  const Cluster& cluster = index_.profile().cluster;
  RETURN_IF_ERROR(ScheduleAllowed(knobs, workload_, cluster));
  const bool again = whole_ && DifferInCarriageAlone(drawn_, knobs);
  if (!again) {
    ASSIGN_OR_RETURN(whole_, BuildSchedule(knobs, workload_, cluster));
    drawn_ = knobs;
  }
  Carry(knobs, *whole_);
  if (workload_.phase == Phase::kBackward) pass_ = PartOf(*whole_, workload_.phase);
  if (!again) beside_ = MeasuredContention(priced(), index_);
  return OkStatus();
}

}  // namespace moeplan::planner
