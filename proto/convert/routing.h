// How pairs are routed, and what that costs, to and from messages. Pure.
#pragma once

#include <string_view>

#include "models/routing/routing_report.h"
#include "models/status.h"
#include "models/workload/workload.h"
#include "moeplan/v1/plan.pb.h"
#include "moeplan/v1/workload.pb.h"

namespace moeplan {

// As it stands: ResolveWorkload checks it.
ExpertRouting RoutingFromProto(const v1::Routing& message);
v1::Routing ToProto(const ExpertRouting& routing);

// kInvalidInput, beginning with `path`, for numbers that no report has.
StatusOr<RoutingReport> RoutingReportFromProto(const v1::RoutingReport& message, std::string_view path);
v1::RoutingReport ToProto(const RoutingReport& report);

}  // namespace moeplan
