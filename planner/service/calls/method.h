// Everything that can be asked of the service in one message and answered in one, whatever carries it.
//
// gRPC and HTTP serve this table and nothing else: a method that is added here is served by both, asked for the same
// role, counted and logged alike.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "models/status.h"
#include "planner/service/access/role.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::v1 {
class PlanResponse;
}

namespace moeplan::service {

// Hears of answers that something follows from, after they were given. Any thread.
class Aftermath {
 public:
  virtual ~Aftermath() = default;
  virtual void AnsweredPlan(const v1::PlanResponse& plan) = 0;
  virtual void AcknowledgedSamples(int stored, int rejected) = 0;
  virtual void TookReport() = 0;
};

struct Method {
  using Message = google::protobuf::Message;

  std::string path;  // "/moeplan.v1.PlannerService/Plan".
  Role role = Role::kAdmin;
  const Message* request = nullptr;   // An empty one of its type.
  const Message* response = nullptr;  // Likewise.
  std::function<StatusOr<std::unique_ptr<Message>>(const Environment&, const Message& request, std::stop_token)> handle;

  // Of a method whose equal requests have equal answers for as long as no profile is stored: whether this answer may be
  // given again. Null: a method of another kind.
  std::function<bool(const Message& answer)> may_repeat;
  // Says what follows from an answer of this method. Null: nothing does.
  std::function<void(const Message& answer, Aftermath& aftermath)> afterwards;
  bool stores_profiles = false;
  bool waits_for_disk = false;  // More than it works: many of them run at once.
  bool streams = false;         // One of StreamMethods.
};

std::span<const Method> Methods();
// Null when there is none of that path.
const Method* FindMethod(std::string_view path);

// What lasts until either side leaves, which gRPC alone carries: path and role, no messages and no handler.
std::span<const Method> StreamMethods();
const Method* FindStream(std::string_view path);

}  // namespace moeplan::service
