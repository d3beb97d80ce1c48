#include "planner/service/http/routes.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "models/text.h"
#include "planner/service/errors.h"
#include "planner/service/http/openapi.h"
#include "proto/grpc_status.h"
#include "proto/host_port.h"
#include "proto/json.h"

namespace moeplan::service::http {
namespace {

using nlohmann::ordered_json;

std::string Dump(const ordered_json& body) {
  return body.dump(-1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace) + "\n";
}

// As gRPC's own gateways translate codes.
int HttpStatusOf(grpc::StatusCode code) {
  switch (code) {
    case grpc::OK: return 200;
    case grpc::INVALID_ARGUMENT:
    case grpc::FAILED_PRECONDITION:
    case grpc::OUT_OF_RANGE: return 400;
    case grpc::UNAUTHENTICATED: return 401;
    case grpc::PERMISSION_DENIED: return 403;
    case grpc::NOT_FOUND: return 404;
    case grpc::ALREADY_EXISTS:
    case grpc::ABORTED: return 409;
    case grpc::RESOURCE_EXHAUSTED: return 429;
    case grpc::CANCELLED: return 499;
    case grpc::UNIMPLEMENTED: return 501;
    case grpc::UNAVAILABLE: return 503;
    case grpc::DEADLINE_EXCEEDED: return 504;
    default: return 500;
  }
}

Response ErrorResponse(const grpc::Status& status) {
  const ErrorDetail detail = DetailOf(status);
  ordered_json body = {
      {"code", CodeName(status.error_code())}, {"message", status.error_message()}, {"reason", detail.reason}};
  if (!detail.field.empty()) {
    body["field"] = detail.field;
    body["found"] = detail.found;
    body["expected"] = detail.expected;
  }
  Response response = {.status = HttpStatusOf(status.error_code()), .body = Dump(body)};
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (response.status == 429) response.headers.emplace_back("Retry-After", "1");
  return response;
}

std::string_view PathOf(const Request& request) {
  return std::string_view(request.target).substr(0, request.target.find('?'));
}

bool IsJson(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  constexpr std::string_view kJson = "application/json";
  return type.size() == kJson.size() && std::equal(type.begin(), type.end(), kJson.begin(), [](char a, char b) {
           return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b;
         });
}

// Whether `host`, a Host header, names this machine.
bool NamesThisMachine(const std::string& host) {
  const auto address = ParseHostPort(host, "Host");
  if (address.ok()) return IsLoopback(*address);
  return IsLoopback({.host = host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host});
}

// What a call refers to until it is answered.
class HttpOrigin final : public Origin {
 public:
  HttpOrigin(std::shared_ptr<const Request> request, std::string message)
      : request_(std::move(request)), message_(std::move(message)) {}

  std::string address() const override { return request_->peer; }
  std::string token() const override { return std::string(BearerToken(request_->authorization)); }
  std::string certificate() const override { return request_->certificate; }
  std::string request_id() const override { return request_->request_id; }
  const std::string& message() const { return message_; }

 private:
  const std::shared_ptr<const Request> request_;
  const std::string message_;
};

// Whether a list such as "gzip, br;q=0.5" has that item, and not with q=0.
bool Lists(std::string_view list, std::string_view item) {
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    std::string_view name = entry.substr(0, entry.find(';'));
    name.remove_prefix(std::min(name.size(), name.find_first_not_of(" \t")));
    name = name.substr(0, name.find_last_not_of(" \t") + 1);
    if (name != item) continue;
    const size_t quality = entry.find("q=0");
    return quality == std::string_view::npos || entry.find_first_of("123456789", quality) != std::string_view::npos;
  }
  return false;
}

// What a page may load and do: its own scripts, styles and images, and calls to where it came from.
constexpr char kPagePolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

Response PageResponse(const Page& page, const Request& request) {
  Response response = {.content_type = std::string(page.content_type)};
  response.headers = {{"Content-Security-Policy", kPagePolicy},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cross-Origin-Resource-Policy", "same-origin"},
                      {"Cache-Control", page.immutable ? "public, max-age=31536000, immutable" : "no-cache"},
                      {"Vary", "Accept, Accept-Encoding"},
                      {"ETag", std::string(page.etag)}};
  if (Lists(request.if_none_match, page.etag)) {
    response.status = 304;
    return response;
  }
  const bool zipped = Lists(request.accept_encoding, "gzip");
  if (zipped) response.headers.emplace_back("Content-Encoding", "gzip");
  response.body = std::string(zipped ? page.gzip : page.plain);
  return response;
}

Response AnswerResponse(const Method& method, const Answer& answer) {
  if (!answer.status.ok()) return ErrorResponse(answer.status);
  google::protobuf::Arena arena;
  google::protobuf::Message* const message = method.response->New(&arena);
  if (!message->ParseFromString(*answer.message)) return ErrorResponse(ToGrpc(error::Unexpected("its own answer")));
  return {.body = ToJson(*message, JsonStyle::kCompact) + "\n"};
}

}  // namespace

Response ErrorResponse(int http_status, grpc::StatusCode code, std::string_view reason, const std::string& message) {
  Response response = ErrorResponse(RpcError(code, reason, message));
  response.status = http_status;
  return response;
}

std::unique_ptr<Response> Routes::Refuse(const Request& request) const {
  const auto refuse = [](Response response) { return std::make_unique<Response>(std::move(response)); };
  if (uses_.loopback && !NamesThisMachine(request.host)) {
    return refuse(
        ErrorResponse(421, grpc::INVALID_ARGUMENT, "OTHER_HOST",
                      StrCat("Host: found '", request.host, "', expected a name of this machine such as localhost")));
  }
  if (request.verb != "POST") return nullptr;
  const Method* const method = FindMethod(PathOf(request));
  if (method == nullptr) {
    return refuse(ErrorResponse(404, grpc::UNIMPLEMENTED, "NO_METHOD",
                                StrCat("no method ", PathOf(request),
                                       "; GET /openapi.json "
                                       "tells what there is")));
  }
  if (!IsJson(request.content_type)) {
    return refuse(ErrorResponse(415, grpc::INVALID_ARGUMENT, "INVALID_INPUT",
                                StrCat("Content-Type: found '", request.content_type, "', expected application/json")));
  }
  // Nothing is unpacked here; without this a packed body would be refused as unreadable JSON.
  if (!request.content_encoding.empty() && request.content_encoding != "identity") {
    return refuse(ErrorResponse(
        415, grpc::UNIMPLEMENTED, "INVALID_INPUT",
        StrCat("Content-Encoding: found '", request.content_encoding, "', expected none: bodies come unpacked")));
  }
  const auto refused = uses_.access.Refuse(BearerToken(request.authorization), method->role);
  if (!refused) return nullptr;
  FinishUnread(*method, request, *refused);
  return refuse(ErrorResponse(*refused));
}

void Routes::FinishUnread(const Method& method, const Request& request, const grpc::Status& why) const {
  const HttpOrigin origin(std::make_shared<const Request>(request), "");
  uses_.dispatcher.NewCall(method, "http", "", origin, [](const Answer&) {})->Finish({.status = why});
}

std::shared_ptr<Call> Routes::Serve(std::shared_ptr<const Request> request, Respond respond) const {
  if (request->verb != "POST") {
    respond(Get(*request));
    return nullptr;
  }
  const Method& method = *FindMethod(PathOf(*request));
  if (!serving_) {
    respond(ErrorResponse(RpcError(grpc::UNAVAILABLE, "ENDING", "the planner is shutting down")));
    return nullptr;
  }
  const std::unique_ptr<google::protobuf::Message> message(method.request->New());
  if (const Status parsed = ParseJson(request->body, "request", *message); !parsed.ok()) {
    FinishUnread(method, *request, ToGrpc(parsed));
    respond(ErrorResponse(ToGrpc(parsed)));
    return nullptr;
  }
  const auto origin = std::make_shared<const HttpOrigin>(request, message->SerializeAsString());
  std::shared_ptr<Call> call =
      uses_.dispatcher.NewCall(method, "http", origin->message(), *origin,
                               [&method, origin, respond = std::move(respond)](const Answer& answer) {
                                 respond(AnswerResponse(method, answer));
                               });
  uses_.dispatcher.Serve(call);
  return call;
}

Response Routes::Get(const Request& request) const {
  const std::string_view path = PathOf(request);
  if (request.verb != "GET" && request.verb != "HEAD") {
    Response response =
        ErrorResponse(405, grpc::UNIMPLEMENTED, "NO_METHOD", StrCat("found ", request.verb, ", expected GET or POST"));
    response.headers.emplace_back("Allow", "GET, HEAD, POST");
    return response;
  }
  if (path == "/healthz") return Health();
  if (path == "/metrics") return MetricsPage(request);
  if (path == "/openapi.json") return {.body = OpenApi()};
  if (path == "/") return Root(request);
  if (const Page* const page = FindPage(path)) return PageResponse(*page, request);
  return ErrorResponse(404, grpc::NOT_FOUND, "NOT_FOUND", StrCat("nothing at ", path));
}

Response Routes::Health() const {
  return {.status = serving_ ? 200 : 503,
          .body = Dump({{"status", serving_ ? "SERVING" : "NOT_SERVING"}, {"version", MOEPLAN_VERSION}})};
}

Response Routes::Root(const Request& request) const {
  const Page* const page = FindPage("/");
  if (page != nullptr && Lists(request.accept, "text/html")) return PageResponse(*page, request);
  return {.body = Dump({{"name", "moeplan"},
                        {"version", MOEPLAN_VERSION},
                        {"grpcAddress", uses_.grpc_address},
                        {"openapi", "/openapi.json"},
                        {"dashboard", page != nullptr ? "/ with Accept: text/html" : "not in this build"}}),
          .headers = {{"Vary", "Accept"}}};
}

const Page* Routes::FindPage(std::string_view path) const {
  const auto page = std::ranges::find(uses_.pages, path, &Page::path);
  return page != uses_.pages.end() ? &*page : nullptr;
}

Response Routes::MetricsPage(const Request& request) const {
  const auto refused =
      uses_.dispatcher.Refuse(BearerToken(request.authorization), Role::kRead, "/metrics", request.peer);
  if (refused) return ErrorResponse(*refused);
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = uses_.metrics.Page()};
}

double CallLimitS(const Request& request) {
  int ms = 0;
  const char* const end = request.timeout_ms.data() + request.timeout_ms.size();
  const auto [rest, error] = std::from_chars(request.timeout_ms.data(), end, ms);
  if (error != std::errc() || rest != end || ms <= 0) return kLongestCallS;
  return std::min(ms * 1e-3, kLongestCallS);
}

}  // namespace moeplan::service::http
