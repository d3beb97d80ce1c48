#include "planner/service/grpc_endpoint.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <exception>
#include <mutex>
#include <stop_token>
#include <utility>

#include "models/check.h"
#include "moeplan/v1/agent_service.grpc.pb.h"
#include "moeplan/v1/planner_service.grpc.pb.h"
#include "moeplan/v1/profile_service.grpc.pb.h"
#include "planner/service/errors.h"
#include "planner/service/fleet/agent_stream.h"
#include "planner/service/fleet/errors.h"
#include "planner/service/handlers/agents.h"
#include "planner/service/handlers/plan.h"
#include "planner/service/handlers/profiles.h"
#include "planner/service/handlers/put_profile.h"
#include "planner/service/handlers/put_samples.h"
#include "proto/grpc_status.h"

namespace moeplan::service {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

template <typename Request, typename Response>
using Handler = StatusOr<Response> (*)(const Environment&, const Request&, std::stop_token);

// One call. gRPC tells it when the caller leaves or the deadline passes; it deletes itself when gRPC is done with it.
class Call final : public ServerUnaryReactor {
 public:
  std::stop_token cancelled() const { return stop_.get_token(); }

  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override { delete this; }

 private:
  std::stop_source stop_;
};

// A bug or a lack of memory in one call is no reason to end the others.
template <typename Request, typename Response>
StatusOr<Response> Guarded(Handler<Request, Response> handler, const Environment& environment, const Request& request,
                           std::stop_token cancelled) {
  if (cancelled.stop_requested()) return error::CallerLeft();
  try {
    return handler(environment, request, std::move(cancelled));
  } catch (const std::exception& problem) {
    return error::Unexpected(problem.what());
  }
}

class Dispatcher {
 public:
  explicit Dispatcher(GrpcEndpoint::Uses uses) : uses_(std::move(uses)) {}

  // Has a worker answer the call. `answered` is told the answer once it was sent.
  template <typename Request, typename Response>
  ServerUnaryReactor* Serve(Handler<Request, Response> handler, CallbackServerContext* context, const Request* request,
                            Response* response, std::function<void(const Response&)> answered = nullptr) {
    context->AddTrailingMetadata(kAnsweredByPlanner, "1");
    auto* const call = new Call;
    const bool taken = uses_.workers.TrySubmit([=, this] {
      StatusOr<Response> answer = Guarded(handler, uses_.environment, *request, call->cancelled());
      if (!answer.ok()) return call->Finish(ToGrpc(answer.status()));
      *response = *answer;
      // From here on call, request and response may be gone.
      call->Finish(grpc::Status::OK);
      if (answered) answered(*answer);
    });
    if (!taken) call->Finish(grpc::Status(grpc::RESOURCE_EXHAUSTED, error::QueueFull().message()));
    return call;
  }

  const GrpcEndpoint::Uses& uses() const { return uses_; }

 private:
  const GrpcEndpoint::Uses uses_;
};

class PlannerService final : public v1::PlannerService::CallbackService {
 public:
  explicit PlannerService(Dispatcher& dispatcher) : dispatcher_(dispatcher) {}

  ServerUnaryReactor* Plan(CallbackServerContext* context, const v1::PlanRequest* request,
                           v1::PlanResponse* response) override {
    return dispatcher_.Serve(&service::Plan, context, request, response, dispatcher_.uses().planned);
  }

 private:
  Dispatcher& dispatcher_;
};

class ProfileService final : public v1::ProfileService::CallbackService {
 public:
  explicit ProfileService(Dispatcher& dispatcher) : dispatcher_(dispatcher) {}

  ServerUnaryReactor* ListProfiles(CallbackServerContext* context, const v1::ListProfilesRequest* request,
                                   v1::ListProfilesResponse* response) override {
    return dispatcher_.Serve(&service::ListProfiles, context, request, response);
  }
  ServerUnaryReactor* GetProfile(CallbackServerContext* context, const v1::GetProfileRequest* request,
                                 v1::GetProfileResponse* response) override {
    return dispatcher_.Serve(&service::GetProfile, context, request, response);
  }
  ServerUnaryReactor* PutSamples(CallbackServerContext* context, const v1::PutSamplesRequest* request,
                                 v1::PutSamplesResponse* response) override {
    return dispatcher_.Serve(&service::PutSamples, context, request, response);
  }
  ServerUnaryReactor* PutProfile(CallbackServerContext* context, const v1::PutProfileRequest* request,
                                 v1::PutProfileResponse* response) override {
    return dispatcher_.Serve(&service::PutProfile, context, request, response);
  }

 private:
  Dispatcher& dispatcher_;
};

// Of a server without a fleet.
class RefusedAgent final : public grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse> {
 public:
  RefusedAgent() { Finish(ToGrpc(error::NoDriver())); }
  void OnDone() override { delete this; }
};

class AgentService final : public v1::AgentService::CallbackService {
 public:
  explicit AgentService(Dispatcher& dispatcher) : dispatcher_(dispatcher) {}

  grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>* Attach(CallbackServerContext* context) override {
    AgentHub* const hub = dispatcher_.uses().environment.agents;
    if (hub == nullptr) return new RefusedAgent;
    context->AddTrailingMetadata(kAnsweredByPlanner, "1");
    return ServeAgent(*hub, *context);
  }
  ServerUnaryReactor* ListAgents(CallbackServerContext* context, const v1::ListAgentsRequest* request,
                                 v1::ListAgentsResponse* response) override {
    return dispatcher_.Serve(&service::ListAgents, context, request, response);
  }
  ServerUnaryReactor* StartCalibration(CallbackServerContext* context, const v1::StartCalibrationRequest* request,
                                       v1::StartCalibrationResponse* response) override {
    return dispatcher_.Serve(&service::StartCalibration, context, request, response);
  }
  ServerUnaryReactor* GetCalibration(CallbackServerContext* context, const v1::GetCalibrationRequest* request,
                                     v1::GetCalibrationResponse* response) override {
    return dispatcher_.Serve(&service::GetCalibration, context, request, response);
  }
  ServerUnaryReactor* ListCalibrations(CallbackServerContext* context, const v1::ListCalibrationsRequest* request,
                                       v1::ListCalibrationsResponse* response) override {
    return dispatcher_.Serve(&service::ListCalibrations, context, request, response);
  }
  ServerUnaryReactor* CancelCalibration(CallbackServerContext* context, const v1::CancelCalibrationRequest* request,
                                        v1::CancelCalibrationResponse* response) override {
    return dispatcher_.Serve(&service::CancelCalibration, context, request, response);
  }

 private:
  Dispatcher& dispatcher_;
};

// Switches of gRPC that hold for the whole process.
void EnableHealthAndReflection() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

class Endpoint final : public GrpcEndpoint {
 public:
  Endpoint(const HostPort& address, Uses uses)
      : dispatcher_(std::move(uses)),
        planner_(dispatcher_),
        profiles_(dispatcher_),
        agents_(dispatcher_),
        address_(address) {}

  ~Endpoint() override {
    if (server_) Shutdown(std::chrono::milliseconds(0));
  }

  bool Start() {
    EnableHealthAndReflection();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(ToString(address_), grpc::InsecureServerCredentials(), &port);
    // Else a second server would silently share the port.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(kMaxGrpcMessageBytes);
    builder.RegisterService(&planner_);
    builder.RegisterService(&profiles_);
    builder.RegisterService(&agents_);
    server_ = builder.BuildAndStart();
    if (!server_ || port == 0) return false;
    address_.port = port;
    SetServing(true);
    return true;
  }

  HostPort address() const override { return address_; }

  void Shutdown(std::chrono::milliseconds grace) override {
    SetServing(false);
    server_->Shutdown(std::chrono::system_clock::now() + grace);
    server_.reset();
  }

 private:
  void SetServing(bool serving) {
    grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
    MOEPLAN_CHECK(health != nullptr);
    for (const char* service : {"", v1::PlannerService::service_full_name(), v1::ProfileService::service_full_name(),
                                v1::AgentService::service_full_name()}) {
      health->SetServingStatus(service, serving);
    }
  }

  Dispatcher dispatcher_;
  PlannerService planner_;
  ProfileService profiles_;
  AgentService agents_;
  HostPort address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

StatusOr<std::unique_ptr<GrpcEndpoint>> GrpcEndpoint::Start(const HostPort& address, Uses uses) {
  auto endpoint = std::make_unique<Endpoint>(address, std::move(uses));
  if (!endpoint->Start()) return error::CannotListen("--grpc", ToString(address), "gRPC did not say why");
  return StatusOr<std::unique_ptr<GrpcEndpoint>>(std::move(endpoint));
}

}  // namespace moeplan::service
