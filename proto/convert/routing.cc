#include "proto/convert/routing.h"

#include <cmath>
#include <limits>
#include <vector>

#include "proto/errors.h"

namespace moeplan {
namespace {

Status InRange(const std::string& path, double value, double least,
               double most = std::numeric_limits<double>::infinity()) {
  if (std::isfinite(value) && value >= least && value <= most) return OkStatus();
  return error::Mismatch(path, StrCat(value),
                         std::isfinite(most) ? StrCat("a number from ", least, " to ", most)
                                             : StrCat("a finite number of at least ", least));
}

template <typename Message>
StatusOr<std::optional<double>> TimeOf(const Message& message, const std::string& path) {
  if (!message.has_predicted_time_s()) return std::optional<double>();
  RETURN_IF_ERROR(InRange(FieldPath(path, "predictedTimeS"), message.predicted_time_s(), 0));
  return std::optional<double>(message.predicted_time_s());
}

template <typename Numbers>
StatusOr<std::vector<int>> ListOf(const Numbers& numbers, int least, const std::string& path) {
  std::vector<int> list;
  for (const int number : numbers) {
    RETURN_IF_ERROR(InRange(ItemPath(path, list.size()), number, least));
    list.push_back(number);
  }
  return list;
}

StatusOr<CapacityBalancing> CapacityFromProto(const v1::RoutingReport::Capacity& message, const std::string& path) {
  CapacityBalancing capacity = {
      .capacity_factor = message.capacity_factor(), .slots = message.slots(), .predicted_time_s = {}};
  RETURN_IF_ERROR(InRange(FieldPath(path, "capacityFactor"), capacity.capacity_factor, 0));
  RETURN_IF_ERROR(InRange(FieldPath(path, "slots"), capacity.slots, 1));
  ASSIGN_OR_RETURN(capacity.predicted_time_s, TimeOf(message, path));
  return capacity;
}

StatusOr<PlacementBalancing> PlacementFromProto(const v1::RoutingReport::Placement& message, const std::string& path) {
  PlacementBalancing placement = {.physical_to_logical = {},
                                  .busiest_rank_ratio = message.busiest_rank_ratio(),
                                  .busiest_rank_ratio_floor = message.busiest_rank_ratio_floor(),
                                  .predicted_time_s = {}};
  ASSIGN_OR_RETURN(placement.physical_to_logical,
                   ListOf(message.physical_to_logical(), 0, FieldPath(path, "physicalToLogical")));
  RETURN_IF_ERROR(InRange(FieldPath(path, "busiestRankRatio"), placement.busiest_rank_ratio, 0));
  RETURN_IF_ERROR(InRange(FieldPath(path, "busiestRankRatioFloor"), placement.busiest_rank_ratio_floor, 0));
  ASSIGN_OR_RETURN(placement.predicted_time_s, TimeOf(message, path));
  return placement;
}

StatusOr<ReplicaBalancing> ReplicasFromProto(const v1::RoutingReport::Replicas& message, const std::string& path) {
  ReplicaBalancing replicas = {.extra_experts_per_rank = message.extra_experts_per_rank(),
                               .copies = {},
                               .physical_to_logical = {},
                               .busiest_rank_ratio = message.busiest_rank_ratio(),
                               .dropped_share = message.dropped_share(),
                               .extra_weight_bytes = message.extra_weight_bytes(),
                               .predicted_time_s = {}};
  RETURN_IF_ERROR(InRange(FieldPath(path, "extraExpertsPerRank"), replicas.extra_experts_per_rank, 1));
  ASSIGN_OR_RETURN(replicas.copies, ListOf(message.copies(), 1, FieldPath(path, "copies")));
  ASSIGN_OR_RETURN(replicas.physical_to_logical,
                   ListOf(message.physical_to_logical(), 0, FieldPath(path, "physicalToLogical")));
  RETURN_IF_ERROR(InRange(FieldPath(path, "busiestRankRatio"), replicas.busiest_rank_ratio, 0));
  RETURN_IF_ERROR(InRange(FieldPath(path, "droppedShare"), replicas.dropped_share, 0, 1));
  RETURN_IF_ERROR(InRange(FieldPath(path, "extraWeightBytes"), replicas.extra_weight_bytes, 0));
  ASSIGN_OR_RETURN(replicas.predicted_time_s, TimeOf(message, path));
  return replicas;
}

}  // namespace

ExpertRouting RoutingFromProto(const v1::Routing& message) {
  ExpertRouting routing = {
      .tokens_per_expert = {message.tokens_per_expert().begin(), message.tokens_per_expert().end()}, .skew = {}};
  if (message.has_skew()) routing.skew = message.skew();
  return routing;
}

v1::Routing ToProto(const ExpertRouting& routing) {
  v1::Routing message;
  message.mutable_tokens_per_expert()->Assign(routing.tokens_per_expert.begin(), routing.tokens_per_expert.end());
  if (routing.skew) message.set_skew(*routing.skew);
  return message;
}

StatusOr<RoutingReport> RoutingReportFromProto(const v1::RoutingReport& message, std::string_view path) {
  RoutingReport report = {.busiest_expert_ratio = message.busiest_expert_ratio(),
                          .busiest_rank_ratio = message.busiest_rank_ratio(),
                          .dropped_share = message.dropped_share(),
                          .capacity = {},
                          .placement = {},
                          .replicas = {}};
  RETURN_IF_ERROR(InRange(FieldPath(path, "busiestExpertRatio"), report.busiest_expert_ratio, 0));
  RETURN_IF_ERROR(InRange(FieldPath(path, "busiestRankRatio"), report.busiest_rank_ratio, 0));
  RETURN_IF_ERROR(InRange(FieldPath(path, "droppedShare"), report.dropped_share, 0, 1));
  if (!message.has_capacity()) return error::Mismatch(FieldPath(path, "capacity"), "nothing", "an object");
  ASSIGN_OR_RETURN(report.capacity, CapacityFromProto(message.capacity(), FieldPath(path, "capacity")));
  if (message.has_placement()) {
    ASSIGN_OR_RETURN(report.placement, PlacementFromProto(message.placement(), FieldPath(path, "placement")));
  }
  if (message.has_replicas()) {
    ASSIGN_OR_RETURN(report.replicas, ReplicasFromProto(message.replicas(), FieldPath(path, "replicas")));
  }
  return report;
}

v1::RoutingReport ToProto(const RoutingReport& report) {
  const auto set_list = [](const std::vector<int>& from, auto& to) { to.Assign(from.begin(), from.end()); };
  v1::RoutingReport message;
  message.set_busiest_expert_ratio(report.busiest_expert_ratio);
  message.set_busiest_rank_ratio(report.busiest_rank_ratio);
  message.set_dropped_share(report.dropped_share);
  v1::RoutingReport::Capacity& capacity = *message.mutable_capacity();
  capacity.set_capacity_factor(report.capacity.capacity_factor);
  capacity.set_slots(report.capacity.slots);
  if (report.capacity.predicted_time_s) capacity.set_predicted_time_s(*report.capacity.predicted_time_s);
  if (const auto& from = report.placement) {
    v1::RoutingReport::Placement& placement = *message.mutable_placement();
    set_list(from->physical_to_logical, *placement.mutable_physical_to_logical());
    placement.set_busiest_rank_ratio(from->busiest_rank_ratio);
    placement.set_busiest_rank_ratio_floor(from->busiest_rank_ratio_floor);
    if (from->predicted_time_s) placement.set_predicted_time_s(*from->predicted_time_s);
  }
  if (const auto& from = report.replicas) {
    v1::RoutingReport::Replicas& replicas = *message.mutable_replicas();
    replicas.set_extra_experts_per_rank(from->extra_experts_per_rank);
    set_list(from->copies, *replicas.mutable_copies());
    set_list(from->physical_to_logical, *replicas.mutable_physical_to_logical());
    replicas.set_busiest_rank_ratio(from->busiest_rank_ratio);
    replicas.set_dropped_share(from->dropped_share);
    replicas.set_extra_weight_bytes(from->extra_weight_bytes);
    if (from->predicted_time_s) replicas.set_predicted_time_s(*from->predicted_time_s);
  }
  return message;
}

}  // namespace moeplan
