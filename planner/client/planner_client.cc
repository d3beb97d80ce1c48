#include "planner/client/planner_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "moeplan/v1/planner_service.grpc.pb.h"
#include "moeplan/v1/profile_service.grpc.pb.h"
#include "planner/client/errors.h"
#include "proto/grpc_status.h"
#include "proto/host_port.h"

namespace moeplan {
namespace {

using Clock = std::chrono::system_clock;

Clock::time_point In(double seconds) {
  constexpr double kYearS = 365 * 86400;  // More would overflow the clock.
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, kYearS)));
}

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
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) return client::error::NoPlanner(address, "the connection failed");
    if (!channel.WaitForStateChange(state, deadline))
      return client::error::NoPlanner(address, "connecting took too long");
  }
  return OkStatus();
}

}  // namespace

class PlannerClient::Impl {
 public:
  Impl(std::string address, double deadline_s, const std::shared_ptr<grpc::Channel>& channel)
      : planner(v1::PlannerService::NewStub(channel)),
        profiles(v1::ProfileService::NewStub(channel)),
        address_(std::move(address)),
        deadline_s_(deadline_s) {}

  template <typename Stub, typename Request, typename Response>
  StatusOr<Response> Call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                          const Request& request) const {
    if (request.ByteSizeLong() > kMaxGrpcMessageBytes) return client::error::TooLarge(request.ByteSizeLong());
    grpc::ClientContext context;
    context.set_deadline(In(deadline_s_));
    Response response;
    const grpc::Status status = (stub.*method)(&context, request, &response);
    if (!status.ok()) return ErrorOf(status, context);
    return response;
  }

  const std::unique_ptr<v1::PlannerService::Stub> planner;
  const std::unique_ptr<v1::ProfileService::Stub> profiles;

 private:
  Status ErrorOf(const grpc::Status& status, const grpc::ClientContext& context) const {
    if (context.GetServerTrailingMetadata().contains(kAnsweredByPlanner)) return FromGrpc(status);
    switch (status.error_code()) {
      case grpc::UNAVAILABLE: return client::error::NoPlanner(address_, status.error_message());
      case grpc::DEADLINE_EXCEEDED: return client::error::TooSlow(address_, deadline_s_);
      default: return FromGrpc(status).Within("the planner at " + address_);
    }
  }

  const std::string address_;
  const double deadline_s_;
};

PlannerClient::PlannerClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PlannerClient::~PlannerClient() = default;

StatusOr<std::unique_ptr<PlannerClient>> PlannerClient::Connect(const std::string& address, double deadline_s) {
  if (!std::isfinite(deadline_s) || deadline_s <= 0) return client::error::BadDeadline(deadline_s);
  RETURN_IF_ERROR(ParseHostPort(address, "planner").status());
  const Clock::time_point deadline = In(deadline_s);
  auto channel = ChannelTo(address);
  if (!WaitUntilConnected(*channel, address, deadline).ok()) {
    // A first connection may fail on a busy machine where a second does not; where no planner is, both do at once.
    channel = ChannelTo(address);
    RETURN_IF_ERROR(WaitUntilConnected(*channel, address, deadline));
  }
  return std::unique_ptr<PlannerClient>(new PlannerClient(std::make_unique<Impl>(address, deadline_s, channel)));
}

StatusOr<v1::PlanResponse> PlannerClient::Plan(const v1::PlanRequest& request) const {
  return impl_->Call(*impl_->planner, &v1::PlannerService::Stub::Plan, request);
}

StatusOr<v1::ListProfilesResponse> PlannerClient::ListProfiles(const v1::ListProfilesRequest& request) const {
  return impl_->Call(*impl_->profiles, &v1::ProfileService::Stub::ListProfiles, request);
}

StatusOr<v1::GetProfileResponse> PlannerClient::GetProfile(const v1::GetProfileRequest& request) const {
  return impl_->Call(*impl_->profiles, &v1::ProfileService::Stub::GetProfile, request);
}

StatusOr<v1::PutSamplesResponse> PlannerClient::PutSamples(const v1::PutSamplesRequest& request) const {
  return impl_->Call(*impl_->profiles, &v1::ProfileService::Stub::PutSamples, request);
}

StatusOr<v1::PutProfileResponse> PlannerClient::PutProfile(const v1::PutProfileRequest& request) const {
  return impl_->Call(*impl_->profiles, &v1::ProfileService::Stub::PutProfile, request);
}

}  // namespace moeplan
