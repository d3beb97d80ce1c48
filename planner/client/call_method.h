// Any method of any service, by its name, with JSON.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <string>
#include <string_view>

#include "models/status.h"
#include "planner/client/connect_options.h"

namespace moeplan::client {

// Calls `method`, "moeplan.v1.PlannerService/Plan", "PlannerService/Plan" or, where one service alone has it, "Plan",
// with an object as JSON, and hands over each answer as JSON: one, or those of a stream as they come, until `answer`
// returns false. kInvalidInput: no such method, or the JSON is not its request. Other errors as of PlannerClient.
Status CallMethod(const ConnectOptions& options, std::string_view method, std::string_view json,
                  const std::function<bool(const google::protobuf::Message& answer, bool streamed)>& answer);

}  // namespace moeplan::client
