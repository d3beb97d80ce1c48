// What the log says of an answered call.
#pragma once

#include <optional>

#include "planner/service/calls/call.h"
#include "planner/service/log.h"

namespace moeplan::service {

// Our own failures are errors, refusals of what callers asked are news, all else is for debugging: of a stream, that
// its caller left, too.
LogRecord RecordOf(const Call& call, const Answer& answer);
LogLevel LevelOf(const Method& method, const Answer& answer);

}  // namespace moeplan::service
