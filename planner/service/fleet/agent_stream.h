// AgentService.Attach over gRPC.
#pragma once

#include <grpcpp/grpcpp.h>

#include "moeplan/v1/agent_service.pb.h"
#include "planner/service/fleet/agent_hub.h"
#include "planner/service/stream_call.h"

namespace moeplan::service {

// The connection of one agent; it lives as long as gRPC needs it. The hub must outlive all connections. What an agent
// does not read in time ends its connection: nothing grows without bound.
grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>* ServeAgent(AgentHub& hub, StreamCall call,
                                                                           grpc::CallbackServerContext& context);

}  // namespace moeplan::service
