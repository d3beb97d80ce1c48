#include <vector>

#include "planner/service/calls/method.h"

namespace moeplan::service {

std::span<const Method> StreamMethods() {
  static const std::vector<Method> methods = {
      {.path = "/moeplan.v1.PlannerService/WatchPlan", .role = Role::kPlan, .streams = true},
      {.path = "/moeplan.v1.AgentService/Attach", .role = Role::kReport, .streams = true},
  };
  return methods;
}

const Method* FindStream(std::string_view path) {
  for (const Method& method : StreamMethods()) {
    if (method.path == path) return &method;
  }
  return nullptr;
}

}  // namespace moeplan::service
