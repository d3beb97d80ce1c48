#include "planner/service/handlers/sweep.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/cost/operation.h"
#include "models/text.h"
#include "planner/service/errors.h"
#include "planner/service/handlers/profile_selection.h"
#include "planner/service/polite_threads.h"
#include "planner/sweep/sweep.h"
#include "proto/convert/plan.h"
#include "proto/convert/workload.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

constexpr int kMostAxes = 4;
constexpr int64_t kMostPoints = 4096;

Status CheckAxes(const v1::SweepRequest& request) {
  if (!request.has_workload()) return moeplan::error::Mismatch("workload", "nothing", "an object");
  if (request.axes().empty()) return moeplan::error::Mismatch("axes", "none", StrCat("1 to ", kMostAxes));
  if (request.axes_size() <= kMostAxes) return OkStatus();
  return moeplan::error::Mismatch(ItemPath("axes", kMostAxes), StrCat(request.axes_size(), " axes"),
                                  StrCat("at most ", kMostAxes));
}

// An error names the first axis that does not go with those before it.
StatusOr<planner::Sweep> SweepOf(const v1::SweepRequest& request, const Profile& profile) {
  std::vector<std::string> axes;
  const planner::SweepOptions options = {
      .extrapolate = request.extrapolate(), .compare = true, .most_rows = kMostPoints, .what = "axes"};
  RETURN_IF_ERROR(WorkloadFromProto(request.workload()).status());
  for (const std::string& axis : request.axes()) {
    axes.push_back(axis);
    StatusOr<planner::Sweep> sweep = planner::Sweep::Make(request.workload(), profile, axes, options);
    if (sweep.ok() && axes.size() == static_cast<size_t>(request.axes_size())) return sweep;
    if (sweep.ok()) continue;
    return moeplan::error::Mismatch(ItemPath("axes", axes.size() - 1), StrCat("'", axis, "'"),
                                    StrCat("an axis that can be swept (", sweep.status().message(), ")"));
  }
  return InternalError("no axis was swept");
}

v1::Plan Brief(v1::Plan plan) {
  plan.clear_order();
  plan.clear_timeline();
  return plan;
}

v1::SweepPoint ToProto(const planner::Sweep& sweep, const planner::SweepRow& row) {
  v1::SweepPoint point;
  *point.mutable_row() = sweep.ToProto(row);
  if (row.best) *point.mutable_row()->mutable_best() = Brief(point.row().best());
  if (row.comparison.runner_up) *point.mutable_runner_up() = Brief(moeplan::ToProto(*row.comparison.runner_up));
  if (row.comparison.baseline_time_s) point.set_baseline_time_s(*row.comparison.baseline_time_s);
  point.set_indistinct_s(row.comparison.indistinct_s);
  for (const std::string& warning : row.warnings) point.add_warnings(warning);
  for (const CostKey& key : row.priced_from) point.add_costs(Describe(key));
  return point;
}

}  // namespace

StatusOr<v1::SweepResponse> Sweep(const Environment& environment, const v1::SweepRequest& request,
                                  std::stop_token cancelled) {
  RETURN_IF_ERROR(CheckAxes(request));
  ASSIGN_OR_RETURN(const Profile profile, environment.store.LoadProfile(SelectionOf(request)));
  ASSIGN_OR_RETURN(const planner::Sweep sweep, SweepOf(request, profile));
  v1::SweepResponse response;
  response.set_profile_name(profile.name);
  response.set_profile_version(profile.version);
  for (const std::string& path : sweep.paths()) response.add_paths(path);
  for (const std::string& note : sweep.notes()) response.add_notes(note);
  const Status swept = sweep.Run(
      PoliteThreads(),
      [&](const planner::SweepRow& row) {
        *response.add_points() = ToProto(sweep, row);
        return OkStatus();
      },
      cancelled);
  if (cancelled.stop_requested()) return error::CallerLeft();
  RETURN_IF_ERROR(swept);
  return response;
}

}  // namespace moeplan::service
