#include "planner/service/http/wire.h"

#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <utility>

#include "models/text.h"
#include "planner/service/calls/request_id.h"
#include "planner/service/http/routes.h"
#include "planner/service/peer.h"

namespace moeplan::service::http {
namespace {

namespace beast = boost::beast;

std::string Text(boost::string_view view) { return {view.data(), view.size()}; }

}  // namespace

void SetLimits(RequestParser& parser, const Limits& limits) {
  parser.header_limit(static_cast<std::uint32_t>(limits.head_bytes));
  parser.body_limit(limits.body_bytes);
}

Request HeadOf(const RequestParser& parser, std::string peer) {
  const auto& head = parser.get();
  const auto header = [&](boost::string_view name) { return Text(head[name]); };
  return {.verb = Text(head.method_string()),
          .target = Text(head.target()),
          .host = header("Host"),
          .authorization = header("Authorization"),
          .content_type = header("Content-Type"),
          .timeout_ms = header("X-Timeout-Ms"),
          .accept = header("Accept"),
          .accept_encoding = header("Accept-Encoding"),
          .if_none_match = header("If-None-Match"),
          .content_encoding = header("Content-Encoding"),
          .request_id = RequestId(header("X-Request-Id")),
          .peer = PeerName(std::move(peer), header(kForwardedForHeader))};
}

std::optional<Response> ErrorAfter(const boost::system::error_code& problem, const Limits& limits) {
  using E = beast::http::error;
  if (problem == E::header_limit) {
    return ErrorResponse(431, grpc::INVALID_ARGUMENT, "TOO_LARGE",
                         StrCat("found a head of more bytes, expected at most ", limits.head_bytes));
  }
  if (problem == E::body_limit) {
    return ErrorResponse(
        413, grpc::INVALID_ARGUMENT, "TOO_LARGE",
        StrCat("found a body of more bytes, expected at most ", limits.body_bytes, "; longer messages go by gRPC"));
  }
  const bool nonsense = problem.category() == beast::http::make_error_code(E::bad_method).category() &&
                        problem != E::end_of_stream && problem != E::partial_message;
  if (!nonsense) return std::nullopt;
  return ErrorResponse(400, grpc::INVALID_ARGUMENT, "NOT_HTTP",
                       StrCat("found ", problem.message(), ", expected a request of HTTP/1.1"));
}

Response TooManyBodies(const Limits& limits) {
  Response response = ErrorResponse(503, grpc::RESOURCE_EXHAUSTED, "TOO_MANY_BODIES",
                                    StrCat("found bodies of more bytes on their way, expected at most ",
                                           limits.all_bodies_bytes, " together; try again, or call over gRPC"));
  response.headers.emplace_back("Retry-After", "1");
  return response;
}

ResponseMessage MessageOf(Response response, std::string_view request_id, bool keep_alive, bool head_only) {
  ResponseMessage message(static_cast<beast::http::status>(response.status), 11);
  message.set(beast::http::field::content_type, response.content_type);
  message.set("Content-Security-Policy",
              "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  message.set("X-Content-Type-Options", "nosniff");
  message.set("Referrer-Policy", "no-referrer");
  message.set(beast::http::field::cache_control, "no-store");
  message.set(kRequestIdHeader, boost::string_view(request_id.data(), request_id.size()));
  for (const auto& [name, value] : response.headers) message.set(name, value);
  message.keep_alive(keep_alive);
  const size_t length = response.body.size();
  if (!head_only) message.body() = std::move(response.body);
  message.content_length(length);
  return message;
}

}  // namespace moeplan::service::http
