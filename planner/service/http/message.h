// A request and its answer, without the library that carries them.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace moeplan::service::http {

struct Request {
  std::string verb;                                           // "GET", "POST", ...
  std::string target;                                         // Path and query, as sent.
  std::string host, authorization, content_type, timeout_ms;  // Headers; empty when absent.
  std::string accept, accept_encoding, if_none_match;         // Likewise.
  std::string content_encoding;                               // Likewise.
  std::string request_id;                                     // The caller's own or a new one.
  std::string body;
  std::string peer;         // Address of the other end.
  std::string certificate;  // The subject of its certificate (access/caller.h); empty: it brought none.
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // Beside those that every answer has.
};

// Sends the answer; once, on any thread.
using Respond = std::function<void(Response response)>;

}  // namespace moeplan::service::http
