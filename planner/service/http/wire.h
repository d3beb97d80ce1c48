// Requests and answers as HTTP/1.1 carries them: what is asked of the HTTP library, for whatever stream brings the
// bytes. Without state; any thread.
#pragma once

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/system/error_code.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "planner/service/http/endpoint.h"
#include "planner/service/http/message.h"

namespace moeplan::service::http {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;
using ResponseMessage = boost::beast::http::response<boost::beast::http::string_body>;

// Before the first byte.
void SetLimits(RequestParser& parser, const Limits& limits);

// What the head says, once it is there; without the body. Its request id is the caller's own or a new one.
Request HeadOf(const RequestParser& parser, std::string peer);

// What is told who sent nonsense or too much; absent where reading ended otherwise: nobody listens.
std::optional<Response> ErrorAfter(const boost::system::error_code& problem, const Limits& limits);

// Where the bodies of all requests together are too large.
Response TooManyBodies(const Limits& limits);

// `head_only`: the head with the length of a body that is not sent.
ResponseMessage MessageOf(Response response, std::string_view request_id, bool keep_alive, bool head_only);

}  // namespace moeplan::service::http
