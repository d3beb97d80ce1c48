// What HTTP answers, whatever carries it.
//
// POST /moeplan.v1.SERVICE/METHOD with an object as JSON: the method's answer, or {"code", "message", "reason"} and,
// where a field is wrong, "field", "found", "expected", with the status that belongs to the gRPC code. GET /healthz:
// 200 {"status": "SERVING", "version"}, or 503 with NOT_SERVING once serving has ended. GET /metrics: Prometheus.
// GET /openapi.json: what there is. GET /: the dashboard for who accepts text/html, else what this is and where gRPC
// listens.
//
// A web page on another site cannot make a visitor's browser ask: calls must be application/json, which a browser sends
// nowhere without leave, and a server that listens on loopback answers to names of this machine alone.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "planner/service/access/access.h"
#include "planner/service/calls/dispatcher.h"
#include "planner/service/http/message.h"
#include "planner/service/http/page.h"
#include "planner/service/metrics.h"

namespace moeplan::service::http {

class Routes {
 public:
  // Borrowed for the routes' life.
  struct Uses {
    const Dispatcher& dispatcher;
    const Access& access;
    const Metrics& metrics;
    const std::string& grpc_address;
    Pages pages;           // The dashboard; may be empty.
    bool loopback = true;  // Whether only this machine reaches it.
  };
  explicit Routes(Uses uses) : uses_(std::move(uses)) {}

  // Why a request whose body has not been read shall not be; empty body of `request`. Null: read it.
  std::unique_ptr<Response> Refuse(const Request& request) const;

  // Answers. The call it makes, null when it made none or it is over: cancel it when the other end has left. Any
  // thread.
  std::shared_ptr<Call> Serve(std::shared_ptr<const Request> request, Respond respond) const;

  void SetNotServing() { serving_ = false; }

 private:
  Response Get(const Request& request) const;
  Response Health() const;
  Response Root(const Request& request) const;
  const Page* FindPage(std::string_view path) const;
  Response MetricsPage(const Request& request) const;
  // Counted and logged like every call, though its message was not read.
  void FinishUnread(const Method& method, const Request& request, const grpc::Status& why) const;

  const Uses uses_;
  std::atomic<bool> serving_ = true;
};

// An error as JSON, {"code", "message", "reason"}.
Response ErrorResponse(int http_status, grpc::StatusCode code, std::string_view reason, const std::string& message);

// How long a call may take: `timeout_ms` of the request, at most and by default kLongestCallS.
inline constexpr double kLongestCallS = 60;
double CallLimitS(const Request& request);

}  // namespace moeplan::service::http
