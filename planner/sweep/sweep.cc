#include "planner/sweep/sweep.h"

#include <algorithm>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "models/links/link_model.h"
#include "models/routing/expert_load.h"
#include "models/text.h"
#include "planner/search/explain_plan.h"
#include "planner/search/plan_layer.h"
#include "planner/search/price_plan.h"
#include "planner/sweep/ordered_rows.h"
#include "proto/convert/cluster.h"
#include "proto/convert/plan.h"
#include "proto/convert/profile.h"
#include "proto/convert/workload.h"

namespace moeplan::planner {

// Plans points one after the other, on one thread, and keeps the changed profile of the last.
class Sweep::Planner {
 public:
  explicit Planner(const Sweep& sweep) : sweep_(sweep), changed_(sweep.profile_) { FitLinks(); }

  // An error is none of the point's.
  StatusOr<SweepRow> Plan(int64_t index, std::stop_token cancelled) {
    const std::vector<size_t> point = sweep_.PointAt(index);
    SweepRow row;
    for (size_t i = 0; i < point.size(); ++i) row.values.push_back(sweep_.axes_[i].values()[point[i]]);
    StatusOr<ComparedAnswer> compared = Answer(point, std::move(cancelled));
    if (!compared.ok()) {
      const StatusCode code = compared.status().code();
      if (code != StatusCode::kInvalidInput && code != StatusCode::kNotFound) return compared.status();
      row.reason = compared.status().message();
      row.refused = true;
      return row;
    }
    PlanAnswer& answer = compared->answer;
    const Workload priced = WithExpectedSlots(answer.workload);
    if (answer.candidates.empty()) {
      row.reason = std::move(answer.explanation);
    } else {
      row.best = std::move(answer.candidates.front());
      row.warnings = std::move(answer.warnings);
    }
    if (row.best && sweep_.options_.compare) {
      ASSIGN_OR_RETURN(const auto times, TimesByKey(*row.best, priced, changed_.cluster));
      row.priced_from = DearestEntries(times, changed_);
      row.comparison = std::move(compared->comparison);
    }
    row.extrapolated = Extrapolated(priced);
    return row;
  }

 private:
  StatusOr<ComparedAnswer> Answer(const std::vector<size_t>& point, std::stop_token cancelled) {
    v1::Workload workload_message = sweep_.workload_;
    v1::Profile cluster_message;
    *cluster_message.mutable_cluster() = sweep_.message_.cluster();
    ForAxes(point, [&](const SweepAxis& axis, size_t value) {
      if (axis.target() == SweepAxis::Target::kWorkload) axis.Set(value, workload_message);
      if (axis.target() == SweepAxis::Target::kCluster) axis.Set(value, cluster_message);
    });
    ASSIGN_OR_RETURN(const Workload workload, WorkloadFromProto(workload_message));
    RETURN_IF_ERROR(ChangeCosts(point));
    ASSIGN_OR_RETURN(changed_.cluster, ClusterFromProto(cluster_message.cluster()));
    return PlanAndCompare(workload, changed_, {.top = 1, .links = links_ ? &*links_ : nullptr},
                          {.stop = {.cancelled = std::move(cancelled), .out_of_time = {}}});
  }

  // Scales multiply what fields are set to.
  Status ChangeCosts(const std::vector<size_t>& point) {
    std::vector<size_t> changes;
    bool fields = false;
    ForAxes(point, [&](const SweepAxis& axis, size_t value) {
      if (axis.target() >= SweepAxis::Target::kCostModel) changes.push_back(value);
      fields = fields || axis.target() == SweepAxis::Target::kCostModel;
    });
    if (changes == changes_) return OkStatus();
    Profile changed = sweep_.profile_;
    if (fields) {
      v1::Profile message = sweep_.message_;
      ForAxes(point, [&](const SweepAxis& axis, size_t value) {
        if (axis.target() == SweepAxis::Target::kCostModel) axis.Set(value, message);
      });
      ASSIGN_OR_RETURN(changed, ProfileFromProto(message));
    }
    ForAxes(point, [&](const SweepAxis& axis, size_t value) {
      if (axis.scales()) axis.Scale(value, changed);
      // Collectives that are assumed may be faster than the links that were measured.
      if (axis.path().starts_with("collectives")) {
        changed.cluster.node_link_bytes_per_s = changed.cluster.network_bytes_per_s = 0;
      }
    });
    changed_ = std::move(changed);
    changes_ = std::move(changes);
    FitLinks();
    return OkStatus();
  }

  template <typename Use>
  void ForAxes(const std::vector<size_t>& point, Use use) const {
    for (size_t i = 0; i < point.size(); ++i) use(sweep_.axes_[i], point[i]);
  }

  bool Extrapolated(const Workload& workload) const { return links_ && NeedsStandIns(*links_, workload, changed_); }

  void FitLinks() {
    if (sweep_.options_.extrapolate) links_.emplace(changed_);
  }

  const Sweep& sweep_;
  Profile changed_;
  std::vector<size_t> changes_;     // What changed_ was made for; empty: its costs are the profile's.
  std::optional<LinkModel> links_;  // Of changed_.
};

StatusOr<Sweep> Sweep::Make(v1::Workload workload, Profile profile, const std::vector<std::string>& axes,
                            SweepOptions options) {
  Sweep sweep;
  sweep.options_ = std::move(options);
  const std::string& what = sweep.options_.what;
  sweep.workload_ = std::move(workload);
  sweep.profile_ = std::move(profile);
  sweep.message_ = moeplan::ToProto(sweep.profile_);
  std::set<std::string> paths;
  if (axes.empty()) return InvalidInput(StrCat(what, ": found none, expected at least one PATH=VALUE,VALUE,..."));
  RETURN_IF_ERROR(WorkloadFromProto(sweep.workload_).status());
  for (const std::string& text : axes) {
    ASSIGN_OR_RETURN(SweepAxis axis, SweepAxis::Parse(text, sweep.workload_, sweep.message_, what));
    if (!paths.insert(axis.path()).second) {
      return InvalidInput(StrCat(what, ": found ", axis.path(), " twice, expected each path once"));
    }
    for (const SweepAxis& before : sweep.axes_) {
      if (!axis.Meets(before)) continue;
      return InvalidInput(
          StrCat(what, ": found ", before.path(), " and ", axis.path(), ", which set the same field, expected one"));
    }
    sweep.rows_ *= static_cast<int64_t>(axis.values().size());
    if (sweep.rows_ > sweep.options_.most_rows) {
      return InvalidInput(StrCat(what, ": found at least ", sweep.rows_, " combinations, expected at most ",
                                 sweep.options_.most_rows, ": sweep fewer values at once"));
    }
    sweep.axes_.push_back(std::move(axis));
  }
  return sweep;
}

std::vector<std::string> Sweep::paths() const {
  std::vector<std::string> paths;
  for (const SweepAxis& axis : axes_) paths.push_back(axis.path());
  return paths;
}

std::vector<std::string> Sweep::notes() const {
  std::vector<std::string> notes;
  for (const SweepAxis& axis : axes_) {
    if (std::string note = axis.Note(); !note.empty()) notes.push_back(std::move(note));
  }
  return notes;
}

std::vector<size_t> Sweep::PointAt(int64_t row) const {
  std::vector<size_t> point(axes_.size());
  for (size_t i = axes_.size(); i-- > 0;) {
    const auto values = static_cast<int64_t>(axes_[i].values().size());
    point[i] = row % values;
    row /= values;
  }
  return point;
}

Status Sweep::Run(int threads, const std::function<Status(const SweepRow&)>& emit,
                  const std::stop_token& cancelled) const {
  constexpr int kRowsPerThread = 16;
  OrderedRows rows(rows_, kRowsPerThread * std::max(threads, 1));
  const std::stop_callback stop_rows(cancelled, [&] { rows.Stop(); });
  std::vector<std::jthread> workers;
  for (int i = 0; i < std::max(threads, 1); ++i) {
    workers.emplace_back([&] {
      Planner planner(*this);
      while (const std::optional<int64_t> index = rows.Take()) rows.Put(*index, planner.Plan(*index, rows.stopped()));
    });
  }
  Status status;
  for (int64_t i = 0; i < rows_ && status.ok(); ++i) {
    const std::optional<StatusOr<SweepRow>> row = rows.Next();
    if (!row) return Cancelled("the sweep was cancelled");
    status = row->ok() ? emit(**row) : row->status();
  }
  rows.Stop();
  return status;
}

v1::WhatIfRow Sweep::ToProto(const SweepRow& row) const {
  v1::WhatIfRow message;
  for (size_t i = 0; i < axes_.size(); ++i) {
    google::protobuf::Value& value = (*message.mutable_fields())[axes_[i].path()];
    if (const auto* number = std::get_if<double>(&row.values[i])) value.set_number_value(*number);
    if (const auto* truth = std::get_if<bool>(&row.values[i])) value.set_bool_value(*truth);
    if (const auto* text = std::get_if<std::string>(&row.values[i])) value.set_string_value(*text);
  }
  if (row.best) {
    *message.mutable_best() = moeplan::ToProto(*row.best);
    message.set_predicted_time_s(row.best->predicted_time_s);
  } else {
    message.set_reason(row.reason);
  }
  if (row.extrapolated) message.set_extrapolated(true);
  return message;
}

}  // namespace moeplan::planner
