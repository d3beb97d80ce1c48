// The one way in which everything here connects to a planner.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>

#include "models/status.h"
#include "planner/client/connect_options.h"

namespace moeplan::client {

// The moment `seconds` from now.
std::chrono::system_clock::time_point In(double seconds);

// What every call brings: the token.
void Identify(grpc::ClientContext& context, const ConnectOptions& options);
// And its deadline, where it has one.
void SetUp(grpc::ClientContext& context, const ConnectOptions& options);

// A channel that is connected; it connects anew by itself when the planner is restarted. kInvalidInput: the options
// are wrong. kUnavailable: nobody answers there, at once where the connection is refused.
StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const ConnectOptions& options);

}  // namespace moeplan::client
