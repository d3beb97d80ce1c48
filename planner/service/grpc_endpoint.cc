#include "planner/service/grpc_endpoint.h"

#include <grpc/compression.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "models/check.h"
#include "models/text.h"
#include "moeplan/v1/agent_service.grpc.pb.h"
#include "moeplan/v1/planner_service.grpc.pb.h"
#include "moeplan/v1/profile_service.grpc.pb.h"
#include "planner/service/calls/request_id.h"
#include "planner/service/connection_gate.h"
#include "planner/service/errors.h"
#include "planner/service/fleet/agent_stream.h"
#include "planner/service/fleet/errors.h"
#include "planner/service/peer.h"
#include "planner/service/stream_call.h"
#include "planner/service/watch/watch_stream.h"
#include "proto/descriptors.h"
#include "proto/grpc_status.h"

namespace moeplan::service {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

constexpr std::string_view kTransport = "grpc";

// What one connection, or all of them, may take.
constexpr int kMaxStreamsOfConnection = 1000;
constexpr int kMaxHeaderBytes = 16 << 10;
constexpr int kHandshakeMs = 10'000;
constexpr int kIdleMs = 5 * 60'000;  // Without a call; clients connect again with the next.
constexpr int kKeepaliveMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr size_t kMaxBytesInFlight = size_t{2} << 30;

// The message in one piece. It shares the memory of the buffer where that is one piece already.
grpc::Slice WholeOf(const ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.TrySingleSlice(&slice).ok()) MOEPLAN_CHECK(buffer.DumpToSingleSlice(&slice).ok());
  return slice;
}

std::string_view View(const grpc::Slice& slice) { return {reinterpret_cast<const char*>(slice.begin()), slice.size()}; }

// The bytes as a buffer that shares them.
ByteBuffer Shared(const Bytes& bytes) {
  auto* const owner = new Bytes(bytes);
  const grpc::Slice slice(
      const_cast<char*>(bytes->data()), bytes->size(), [](void* held) { delete static_cast<Bytes*>(held); }, owner);
  return ByteBuffer(&slice, 1);
}

// A call that is over at once.
ServerUnaryReactor* Finished(CallbackServerContext& context, const grpc::Status& status) {
  if (!status.ok()) context.AddTrailingMetadata(kAnsweredByPlanner, "1");
  ServerUnaryReactor* const reactor = context.DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

// One call. gRPC tells it when the caller leaves or the deadline passes; it deletes itself when gRPC is done with it.
class UnaryCall final : public ServerUnaryReactor, private Origin {
 public:
  UnaryCall(const Dispatcher& dispatcher, const Method& method, CallbackServerContext& context,
            const ByteBuffer& request, ByteBuffer* response)
      : context_(context), request_(WholeOf(request)), response_(response) {
    call_ = dispatcher.NewCall(method, kTransport, View(request_), *this,
                               [this](const Answer& answer) { Answered(answer); });
    // A copy: once it is answered, this may be gone.
    dispatcher.Serve(std::shared_ptr<Call>(call_));
  }

  void OnCancel() override { call_->Cancel(); }
  void OnDone() override { delete this; }

 private:
  std::string address() const override { return PeerName(context_.peer(), Header(context_, kForwardedForHeader)); }
  std::string token() const override { return std::string(BearerToken(Header(context_, "authorization"))); }
  std::string certificate() const override { return CertificateOf(context_); }
  std::string request_id() const override {
    if (id_.empty()) id_ = RequestId(Header(context_, kRequestIdHeader));
    return id_;
  }

  void Answered(const Answer& answer) {
    if (answer.message) {
      *response_ = Shared(answer.message);
    } else {
      context_.AddTrailingMetadata(kAnsweredByPlanner, "1");
      context_.AddTrailingMetadata(kRequestIdHeader, request_id());
    }
    Finish(answer.status);
  }

  CallbackServerContext& context_;
  const grpc::Slice request_;
  ByteBuffer* const response_;
  mutable std::string id_;  // Asked for by whoever answers alone.
  std::shared_ptr<Call> call_;
};

// A service whose unary methods, those of the table, go to the dispatcher as bytes. What generated code can do is one
// class around another for each method; this does the same for all of them.
template <typename Generated, typename Base = typename Generated::Service>
class RawService : public Base {
 public:
  explicit RawService(const Dispatcher& dispatcher) {
    const auto* const service = ProtoFiles().FindServiceByName(Generated::service_full_name());
    MOEPLAN_CHECK(service != nullptr);
    for (int i = 0; i < service->method_count(); ++i) {
      const Method* const method =
          FindMethod(StrCat("/", Generated::service_full_name(), "/", service->method(i)->name()));
      if (method != nullptr) Serve(i, dispatcher, *method);
    }
  }

 private:
  void Serve(int index, const Dispatcher& dispatcher, const Method& method) {
    this->MarkMethodRawCallback(
        index, new grpc::internal::CallbackUnaryHandler<ByteBuffer, ByteBuffer>(
                   [&dispatcher, &method](CallbackServerContext* context, const ByteBuffer* request,
                                          ByteBuffer* response) -> ServerUnaryReactor* {
                     // A caller may end its side without a message; there is nothing to look at then.
                     if (!request->Valid()) return Finished(*context, error::UnreadableRequest());
                     if (!method.may_repeat) return new UnaryCall(dispatcher, method, *context, *request, response);
                     if (const Bytes kept = dispatcher.Kept(method, kTransport, View(WholeOf(*request)))) {
                       *response = Shared(kept);
                       return Finished(*context, grpc::Status::OK);
                     }
                     return new UnaryCall(dispatcher, method, *context, *request, response);
                   }));
  }
};

class AgentService final
    : public RawService<v1::AgentService, v1::AgentService::WithCallbackMethod_Attach<v1::AgentService::Service>> {
 public:
  explicit AgentService(const GrpcEndpoint::Uses& uses) : RawService(uses.dispatcher), uses_(uses) {}

  using Reactor = grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>;
  Reactor* Attach(CallbackServerContext* context) override {
    StreamCall call(uses_.dispatcher, uses_.streams, "/moeplan.v1.AgentService/Attach", *context);
    if (const auto why = call.Refused()) return new RefusedStream<Reactor>(std::move(call), *why);
    if (uses_.hub == nullptr) return new RefusedStream<Reactor>(std::move(call), ToGrpc(error::NoDriver()));
    return ServeAgent(*uses_.hub, std::move(call), *context);
  }

 private:
  const GrpcEndpoint::Uses& uses_;
};

class PlannerService final
    : public RawService<v1::PlannerService,
                        v1::PlannerService::WithCallbackMethod_WatchPlan<v1::PlannerService::Service>> {
 public:
  explicit PlannerService(const GrpcEndpoint::Uses& uses) : RawService(uses.dispatcher), uses_(uses) {}

  using Reactor = grpc::ServerWriteReactor<v1::WatchPlanResponse>;
  Reactor* WatchPlan(CallbackServerContext* context, const v1::WatchPlanRequest* request) override {
    StreamCall call(uses_.dispatcher, uses_.streams, "/moeplan.v1.PlannerService/WatchPlan", *context);
    if (const auto why = call.Refused()) return new RefusedStream<Reactor>(std::move(call), *why);
    if (uses_.watchers.count() >= PlanWatchers::kMost) {
      return new RefusedStream<Reactor>(std::move(call), error::TooManyWatchers(PlanWatchers::kMost));
    }
    return ServeWatcher(uses_.watchers, std::move(call), *context, *request);
  }

 private:
  const GrpcEndpoint::Uses& uses_;
};

// Switches of gRPC that hold for the whole process.
void EnableHealthAndReflection() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const Tls& tls) {
  if (tls.certificate.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(tls.client_authority.empty()
                                                ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                                : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_key_cert_pairs.push_back({.private_key = tls.key, .cert_chain = tls.certificate});
  options.pem_root_certs = tls.client_authority;
  return grpc::SslServerCredentials(options);
}

class Endpoint final : public GrpcEndpoint {
 public:
  explicit Endpoint(const Uses& uses) : uses_(uses), planner_(uses_), profiles_(uses_.dispatcher), agents_(uses_) {}

  ~Endpoint() override {
    if (server_) Shutdown(std::chrono::milliseconds(0));
  }

  Status Start(const HostPort& address, const Tls& tls) {
    EnableHealthAndReflection();
    ASSIGN_OR_RETURN(gate_, ConnectionGate::Listen(address));
    address_ = gate_->address();
    grpc::ServerBuilder builder;
    using FromOutside = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(FromOutside::FROM_FD, CredentialsOf(tls));
    SetLimits(builder);
    RefuseCompression(builder);
    builder.RegisterService(&planner_);
    builder.RegisterService(&profiles_);
    builder.RegisterService(&agents_);
    server_ = builder.BuildAndStart();
    if (!server_) return error::CannotListen("--grpc", ToString(address), "gRPC did not say why");
    SetServing(true);
    gate_->Open({.most_connections = uses_.most_connections,
                 .unacknowledged_ms = kKeepaliveTimeoutMs,
                 .take = [this](int fd) { Take(fd); },
                 .refused = uses_.refused,
                 .log = uses_.log});
    return OkStatus();
  }

  HostPort address() const override { return address_; }

  void Shutdown(std::chrono::milliseconds grace) override {
    SetServing(false);
    gate_.reset();
    server_->Shutdown(std::chrono::system_clock::now() + grace);
    server_.reset();
  }

 private:
  void Take(int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor_->HandleNewConnection(&connection);
  }

  static void SetLimits(grpc::ServerBuilder& builder) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsOfConnection);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxHeaderBytes);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    // Watchers and agents whose machine is gone do not stay; both sides may ask.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
    builder.SetMaxReceiveMessageSize(kMaxGrpcMessageBytes);
    builder.SetResourceQuota(grpc::ResourceQuota("moeplan").Resize(kMaxBytesInFlight));
  }

  // gRPC 1.51 unpacks a compressed message before anything looks at its size or at the caller's token, so that a
  // mebibyte on the wire takes a gibibyte of memory. Without the filter that unpacks nothing does, for health checks
  // and reflection either, and a call whose headers name an algorithm is answered UNIMPLEMENTED. Our clients never
  // compress.
  static void RefuseCompression(grpc::ServerBuilder& builder) {
    builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
      builder.SetCompressionAlgorithmSupportStatus(algorithm, /*enabled=*/false);
    }
  }

  void SetServing(bool serving) {
    grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
    MOEPLAN_CHECK(health != nullptr);
    for (const char* service : {"", v1::PlannerService::service_full_name(), v1::ProfileService::service_full_name(),
                                v1::AgentService::service_full_name()}) {
      health->SetServingStatus(service, serving);
    }
  }

  const Uses uses_;
  PlannerService planner_;
  RawService<v1::ProfileService> profiles_;
  AgentService agents_;
  HostPort address_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ConnectionGate> gate_;  // Last: it gives connections to those above.
};

}  // namespace

StatusOr<std::unique_ptr<GrpcEndpoint>> GrpcEndpoint::Start(const HostPort& address, const Tls& tls, const Uses& uses) {
  auto endpoint = std::make_unique<Endpoint>(uses);
  RETURN_IF_ERROR(endpoint->Start(address, tls));
  return StatusOr<std::unique_ptr<GrpcEndpoint>>(std::move(endpoint));
}

}  // namespace moeplan::service
