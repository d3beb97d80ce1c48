#include "planner/service/stream_call.h"

#include <string>
#include <utility>
#include <vector>

#include "models/check.h"
#include "planner/service/access/caller.h"
#include "planner/service/calls/method.h"
#include "planner/service/calls/request_id.h"
#include "planner/service/peer.h"
#include "proto/grpc_status.h"

namespace moeplan::service {

std::string_view Header(const grpc::CallbackServerContext& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

std::string CertificateOf(const grpc::CallbackServerContext& context) {
  const auto authenticated = context.auth_context();
  if (!authenticated || !authenticated->IsPeerAuthenticated()) return "";
  const std::vector<grpc::string_ref> pem = authenticated->FindPropertyValues("x509_pem_cert");
  return pem.empty() ? "" : SubjectOfPem({pem.front().data(), pem.front().size()});
}

// Copies: gRPC may be done with the stream before everybody else is.
struct StreamCall::Caller final : Origin {
  explicit Caller(const grpc::CallbackServerContext& context)
      : from(PeerName(context.peer(), Header(context, kForwardedForHeader))),
        bearer(BearerToken(Header(context, "authorization"))),
        subject(CertificateOf(context)),
        id(RequestId(Header(context, kRequestIdHeader))) {}

  std::string address() const override { return from; }
  std::string token() const override { return bearer; }
  std::string certificate() const override { return subject; }
  std::string request_id() const override { return id; }

  const std::string from, bearer, subject, id;
};

StreamCall::StreamCall(const Dispatcher& dispatcher, OpenStreams& open, std::string_view path,
                       grpc::CallbackServerContext& context)
    : dispatcher_(&dispatcher), open_(&open), caller_(std::make_unique<Caller>(context)) {
  const Method* const method = FindStream(path);
  MOEPLAN_CHECK(method != nullptr);
  call_ = dispatcher.NewCall(*method, "grpc", /*request=*/{}, *caller_, [](const Answer&) {});
  context.AddInitialMetadata(kRequestIdHeader, caller_->id);
  context.AddTrailingMetadata(kRequestIdHeader, caller_->id);
  context.AddTrailingMetadata(kAnsweredByPlanner, "1");
}

StreamCall::~StreamCall() = default;
StreamCall::StreamCall(StreamCall&&) noexcept = default;

std::string StreamCall::caller() const { return dispatcher_->CallerOf(*caller_); }

std::optional<grpc::Status> StreamCall::Refused() { return dispatcher_->Refusal(*call_); }

void StreamCall::Opened(std::weak_ptr<RevocableStream> stream) {
  open_->Add(caller_->bearer, call_->method().role, std::move(stream));
}

void StreamCall::Ended(const grpc::Status& status) { call_->Finish({.status = status}); }

}  // namespace moeplan::service
