#include "planner/client/channel.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "planner/client/errors.h"
#include "proto/grpc_status.h"
#include "proto/host_port.h"

namespace moeplan::client {
namespace {

using Clock = std::chrono::system_clock;

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxGrpcMessageBytes);
  // Clients of one process would share connections, and with them the pause after a refused one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // The scheme is written out because "HOST:PORT" may read as one.
  return grpc::CreateCustomChannel("dns:///" + address, grpc::InsecureChannelCredentials(), arguments);
}

// gRPC itself would go on trying until the deadline.
Status WaitUntilConnected(grpc::Channel& channel, const std::string& address, Clock::time_point deadline) {
  for (auto state = channel.GetState(/*try_to_connect=*/true); state != GRPC_CHANNEL_READY;
       state = channel.GetState(/*try_to_connect=*/true)) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) return error::NoPlanner(address, "the connection failed");
    if (!channel.WaitForStateChange(state, deadline)) return error::NoPlanner(address, "connecting took too long");
  }
  return OkStatus();
}

}  // namespace

Clock::time_point In(double seconds) {
  constexpr double kYearS = 365 * 86400;  // More would overflow the clock.
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, kYearS)));
}

StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const ConnectOptions& options) {
  if (!std::isfinite(options.deadline_s) || options.deadline_s <= 0) return error::BadDeadline(options.deadline_s);
  RETURN_IF_ERROR(ParseHostPort(options.address, "planner").status());
  const Clock::time_point deadline = In(options.deadline_s);
  auto channel = ChannelTo(options.address);
  if (!WaitUntilConnected(*channel, options.address, deadline).ok()) {
    // A first connection may fail on a busy machine where a second does not; where no planner is, both do at once.
    channel = ChannelTo(options.address);
    RETURN_IF_ERROR(WaitUntilConnected(*channel, options.address, deadline));
  }
  return channel;
}

}  // namespace moeplan::client
