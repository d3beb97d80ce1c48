#include "planner/sweep/sweep.h"

#include <algorithm>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "models/links/link_model.h"
#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "planner/search/plan_layer.h"
#include "planner/sweep/ordered_rows.h"
#include "proto/convert/cluster.h"
#include "proto/convert/plan.h"
#include "proto/convert/workload.h"

namespace moeplan {

// Plans points one after the other, on one thread, and keeps the scaled profile of the last.
class Sweep::Planner {
 public:
  explicit Planner(const Sweep& sweep) : sweep_(sweep), scaled_(sweep.profile_) { FitLinks(); }

  // An error is none of the point's.
  StatusOr<SweepRow> Plan(int64_t index, std::stop_token cancelled) {
    const std::vector<size_t> point = sweep_.PointAt(index);
    SweepRow row;
    for (size_t i = 0; i < point.size(); ++i) row.values.push_back(sweep_.axes_[i].values()[point[i]]);
    StatusOr<PlanAnswer> answer = Answer(point, std::move(cancelled));
    if (!answer.ok()) {
      const StatusCode code = answer.status().code();
      if (code != StatusCode::kInvalidInput && code != StatusCode::kNotFound) return answer.status();
      row.reason = answer.status().message();
      row.refused = true;
    } else if (answer->candidates.empty()) {
      row.reason = std::move(answer->explanation);
    } else {
      row.best = std::move(answer->candidates.front());
    }
    row.extrapolated = answer.ok() && Extrapolated(answer->workload);
    return row;
  }

 private:
  StatusOr<PlanAnswer> Answer(const std::vector<size_t>& point, std::stop_token cancelled) {
    v1::Workload workload_message = sweep_.workload_;
    v1::Cluster cluster_message = moeplan::ToProto(sweep_.profile_.cluster);
    for (size_t i = 0; i < point.size(); ++i) sweep_.axes_[i].Apply(point[i], workload_message, cluster_message);
    ASSIGN_OR_RETURN(const Workload workload, WorkloadFromProto(workload_message));
    Scale(point);
    ASSIGN_OR_RETURN(scaled_.cluster, ClusterFromProto(cluster_message));
    return PlanLayer(workload, scaled_,
                     {.top = 1, .cancelled = std::move(cancelled), .links = links_ ? &*links_ : nullptr});
  }

  void Scale(const std::vector<size_t>& point) {
    std::vector<size_t> scales;
    for (size_t i = 0; i < point.size(); ++i) {
      if (sweep_.axes_[i].scales()) scales.push_back(point[i]);
    }
    if (scales == scales_) return;
    scaled_ = sweep_.profile_;
    for (size_t i = 0; i < point.size(); ++i) sweep_.axes_[i].Apply(point[i], scaled_);
    scales_ = std::move(scales);
    FitLinks();
  }

  bool Extrapolated(const Workload& workload) const {
    if (!links_) return false;
    const std::vector<CollectiveKey> keys = LayerCollectives(workload, scaled_.cluster.gpus_per_node);
    return std::ranges::any_of(keys, [&](const CollectiveKey& key) {
      return Find(scaled_, key) == nullptr && links_->Predict(key).has_value();
    });
  }

  void FitLinks() {
    if (sweep_.extrapolate_) links_.emplace(scaled_);
  }

  const Sweep& sweep_;
  Profile scaled_;
  std::vector<size_t> scales_;      // What scaled_ was made for; empty: not scaled.
  std::optional<LinkModel> links_;  // Of scaled_.
};

StatusOr<Sweep> Sweep::Make(v1::Workload workload, Profile profile, const std::vector<std::string>& axes,
                            bool extrapolate) {
  Sweep sweep;
  sweep.extrapolate_ = extrapolate;
  sweep.workload_ = std::move(workload);
  sweep.profile_ = std::move(profile);
  std::set<std::string> paths;
  if (axes.empty()) return InvalidInput("--sweep: found none, expected at least one PATH=VALUE,VALUE,...");
  RETURN_IF_ERROR(WorkloadFromProto(sweep.workload_).status());
  for (const std::string& text : axes) {
    ASSIGN_OR_RETURN(SweepAxis axis, SweepAxis::Parse(text, sweep.profile_));
    if (!paths.insert(axis.path()).second) {
      return InvalidInput(StrCat("--sweep: found ", axis.path(), " twice, expected each path once"));
    }
    sweep.rows_ *= static_cast<int64_t>(axis.values().size());
    if (sweep.rows_ > kMaxRows) {
      return InvalidInput(StrCat("--sweep: found at least ", sweep.rows_, " combinations, expected at most ", kMaxRows,
                                 ": sweep fewer values at once"));
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

std::vector<size_t> Sweep::PointAt(int64_t row) const {
  std::vector<size_t> point(axes_.size());
  for (size_t i = axes_.size(); i-- > 0;) {
    const auto values = static_cast<int64_t>(axes_[i].values().size());
    point[i] = row % values;
    row /= values;
  }
  return point;
}

Status Sweep::Run(int threads, const std::function<Status(const SweepRow&)>& emit) const {
  constexpr int kRowsPerThread = 16;
  OrderedRows rows(rows_, kRowsPerThread * std::max(threads, 1));
  std::vector<std::jthread> workers;
  for (int i = 0; i < std::max(threads, 1); ++i) {
    workers.emplace_back([&] {
      Planner planner(*this);
      while (const std::optional<int64_t> index = rows.Take()) rows.Put(*index, planner.Plan(*index, rows.stopped()));
    });
  }
  Status status;
  for (int64_t i = 0; i < rows_ && status.ok(); ++i) {
    const StatusOr<SweepRow> row = rows.Next();
    status = row.ok() ? emit(*row) : row.status();
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

}  // namespace moeplan
