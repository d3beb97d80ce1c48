// Answers calls: who may ask, has it been answered before, who answers it, what is told of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "planner/service/access/access.h"
#include "planner/service/access/caller.h"
#include "planner/service/calls/answer_cache.h"
#include "planner/service/calls/call.h"
#include "planner/service/handlers/environment.h"
#include "planner/service/worker_pool.h"

namespace moeplan::service {

class Dispatcher {
 public:
  // What calls need, borrowed for the dispatcher's life.
  struct Uses {
    const Environment& environment;
    WorkerPool& workers;
    WorkerPool& appenders;  // For methods that wait for the disk.
    const Access& access;
    AnswerCache& cache;
    // Told each call that was answered by Kept; null: every call is to be served, so that `answered` hears of it.
    std::function<void(const Method& method, std::string_view transport, double seconds)> answered_quietly;
    std::function<void(std::string_view path, const std::string& address, const grpc::Status& why)> refused;
    // Told each other answered call.
    std::function<void(const Call& call, const Answer& answer)> answered;
    std::function<void(double seconds)> searched;  // Told how long each search took.
    // Told each answer that was worked out, after it was given, on a worker.
    std::function<void(const Method& method, const google::protobuf::Message& answer)> worked_out;
  };

  explicit Dispatcher(Uses uses) : uses_(std::move(uses)) {}

  // The kept answer to a question that whoever asks may ask, counted as an answered call; null: serve the call. Most
  // calls end here, and cost little more than their transport. `transport` is where they came.
  Bytes Kept(const Method& method, std::string_view transport, std::string_view request) const;

  // A call that is counted and logged when it is answered; arguments as of Call.
  std::shared_ptr<Call> NewCall(const Method& method, std::string_view transport, std::string_view request,
                                const Origin& origin, Call::Done done) const;

  // Answers the call, now or on a worker: UNAUTHENTICATED or PERMISSION_DENIED without a worker, RESOURCE_EXHAUSTED
  // when there is no room in the queue. Never blocks. Any thread.
  void Serve(const std::shared_ptr<Call>& call) const;

  // Why the call may not be served: its token is not good enough. Absent: it may.
  std::optional<grpc::Status> Refusal(const Call& call) const {
    if (!uses_.access.asks_for_tokens()) return std::nullopt;
    return uses_.access.Refuse(call.origin().token(), call.method().role);
  }

  // Who calls (access/caller.h).
  std::string CallerOf(const Origin& origin) const {
    return CallerText(uses_.access.NameOf(origin.token()), origin.certificate());
  }

  // For what is no call: why whoever brings `token` from `address` may not do what needs `role`, counted and logged;
  // absent: it may.
  std::optional<grpc::Status> Refuse(std::string_view token, Role role, std::string_view path,
                                     const std::string& address) const {
    std::optional<grpc::Status> refused = uses_.access.Refuse(token, role);
    if (refused) uses_.refused(path, address, *refused);
    return refused;
  }

 private:
  void Search(const std::shared_ptr<Call>& call) const;
  void Work(const std::shared_ptr<Call>& call) const;

  const Uses uses_;
};

}  // namespace moeplan::service
