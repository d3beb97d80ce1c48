#include "planner/client/planner_client.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "moeplan/v1/agent_service.grpc.pb.h"
#include "moeplan/v1/planner_service.grpc.pb.h"
#include "moeplan/v1/profile_service.grpc.pb.h"
#include "planner/client/channel.h"
#include "planner/client/errors.h"
#include "proto/grpc_status.h"

namespace moeplan::client {
class PlannerClient::Impl {
 public:
  Impl(ConnectOptions options, const std::shared_ptr<grpc::Channel>& channel)
      : planner(v1::PlannerService::NewStub(channel)),
        profiles(v1::ProfileService::NewStub(channel)),
        agents(v1::AgentService::NewStub(channel)),
        options_(std::move(options)) {}

  template <typename Stub, typename Request, typename Response>
  StatusOr<Response> Call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                          const Request& request, const ConnectOptions& options) const {
    if (request.ByteSizeLong() > kMaxGrpcMessageBytes) return client::error::TooLarge(request.ByteSizeLong());
    grpc::ClientContext context;
    client::SetUp(context, options);
    Response response;
    const grpc::Status status = (stub.*method)(&context, request, &response);
    if (!status.ok()) return ErrorOf(status, context, options);
    return response;
  }

  const ConnectOptions& options() const { return options_; }

  const std::unique_ptr<v1::PlannerService::Stub> planner;
  const std::unique_ptr<v1::ProfileService::Stub> profiles;
  const std::unique_ptr<v1::AgentService::Stub> agents;

 private:
  Status ErrorOf(const grpc::Status& status, const grpc::ClientContext& context, const ConnectOptions& options) const {
    if (context.GetServerTrailingMetadata().contains(kAnsweredByPlanner)) return FromGrpc(status);
    switch (status.error_code()) {
      case grpc::UNAVAILABLE: return client::error::NoPlanner(options_.address, status.error_message());
      case grpc::DEADLINE_EXCEEDED: return client::error::TooSlow(options_.address, options.deadline_s);
      default: return FromGrpc(status).Within("the planner at " + options_.address);
    }
  }

  const ConnectOptions options_;
};

PlannerClient::PlannerClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PlannerClient::~PlannerClient() = default;

StatusOr<std::unique_ptr<PlannerClient>> PlannerClient::Connect(const ConnectOptions& options) {
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, client::OpenChannel(options));
  return std::unique_ptr<PlannerClient>(new PlannerClient(std::make_unique<Impl>(options, channel)));
}

StatusOr<v1::PlanResponse> PlannerClient::Plan(const v1::PlanRequest& request) const {
  return impl_->Call(*impl_->planner, &v1::PlannerService::Stub::Plan, request, impl_->options());
}

StatusOr<v1::PlanResponse> PlannerClient::Plan(const v1::PlanRequest& request, double deadline_s) const {
  ConnectOptions options = impl_->options();
  options.deadline_s = deadline_s;
  return impl_->Call(*impl_->planner, &v1::PlannerService::Stub::Plan, request, options);
}

StatusOr<v1::ReportRunResponse> PlannerClient::ReportRun(const v1::ReportRunRequest& request) const {
  return impl_->Call(*impl_->planner, &v1::PlannerService::Stub::ReportRun, request, impl_->options());
}

StatusOr<v1::ListDriftsResponse> PlannerClient::ListDrifts(const v1::ListDriftsRequest& request) const {
  return impl_->Call(*impl_->planner, &v1::PlannerService::Stub::ListDrifts, request, impl_->options());
}

StatusOr<v1::ListProfilesResponse> PlannerClient::ListProfiles(const v1::ListProfilesRequest& request) const {
  return impl_->Call(*impl_->profiles, &v1::ProfileService::Stub::ListProfiles, request, impl_->options());
}

StatusOr<v1::GetProfileResponse> PlannerClient::GetProfile(const v1::GetProfileRequest& request) const {
  return impl_->Call(*impl_->profiles, &v1::ProfileService::Stub::GetProfile, request, impl_->options());
}

StatusOr<v1::PutSamplesResponse> PlannerClient::PutSamples(const v1::PutSamplesRequest& request) const {
  return impl_->Call(*impl_->profiles, &v1::ProfileService::Stub::PutSamples, request, impl_->options());
}

StatusOr<v1::PutProfileResponse> PlannerClient::PutProfile(const v1::PutProfileRequest& request) const {
  return impl_->Call(*impl_->profiles, &v1::ProfileService::Stub::PutProfile, request, impl_->options());
}

StatusOr<v1::AppendSamplesResponse> PlannerClient::AppendSamples(const v1::AppendSamplesRequest& request) const {
  return impl_->Call(*impl_->profiles, &v1::ProfileService::Stub::AppendSamples, request, impl_->options());
}

StatusOr<v1::FitProfileResponse> PlannerClient::FitProfile(const v1::FitProfileRequest& request) const {
  return impl_->Call(*impl_->profiles, &v1::ProfileService::Stub::FitProfile, request, impl_->options());
}

StatusOr<v1::ListRejectedSamplesResponse> PlannerClient::ListRejectedSamples(
    const v1::ListRejectedSamplesRequest& request) const {
  return impl_->Call(*impl_->profiles, &v1::ProfileService::Stub::ListRejectedSamples, request, impl_->options());
}

StatusOr<v1::ListAgentsResponse> PlannerClient::ListAgents(const v1::ListAgentsRequest& request) const {
  return impl_->Call(*impl_->agents, &v1::AgentService::Stub::ListAgents, request, impl_->options());
}

StatusOr<v1::StartCalibrationResponse> PlannerClient::StartCalibration(
    const v1::StartCalibrationRequest& request) const {
  return impl_->Call(*impl_->agents, &v1::AgentService::Stub::StartCalibration, request, impl_->options());
}

StatusOr<v1::GetCalibrationResponse> PlannerClient::GetCalibration(const v1::GetCalibrationRequest& request) const {
  return impl_->Call(*impl_->agents, &v1::AgentService::Stub::GetCalibration, request, impl_->options());
}

StatusOr<v1::ListCalibrationsResponse> PlannerClient::ListCalibrations(
    const v1::ListCalibrationsRequest& request) const {
  return impl_->Call(*impl_->agents, &v1::AgentService::Stub::ListCalibrations, request, impl_->options());
}

StatusOr<v1::CancelCalibrationResponse> PlannerClient::CancelCalibration(
    const v1::CancelCalibrationRequest& request) const {
  return impl_->Call(*impl_->agents, &v1::AgentService::Stub::CancelCalibration, request, impl_->options());
}

}  // namespace moeplan::client
