// PlannerService.WatchPlan over gRPC.
#pragma once

#include <grpcpp/grpcpp.h>

#include "moeplan/v1/planner_service.pb.h"
#include "planner/service/stream_call.h"
#include "planner/service/watch/plan_watchers.h"

namespace moeplan::service {

// The stream to one watcher; it lives as long as gRPC needs it. The watchers must outlive all streams. Of what a
// watcher does not read in time the newest is kept.
grpc::ServerWriteReactor<v1::WatchPlanResponse>* ServeWatcher(PlanWatchers& watchers, StreamCall call,
                                                              grpc::CallbackServerContext& context,
                                                              const v1::WatchPlanRequest& request);

}  // namespace moeplan::service
