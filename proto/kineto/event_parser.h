// Takes a trace's events out of its JSON, one by one, without keeping the text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/status.h"
#include "proto/kineto/events.h"
#include "proto/kineto/trace_text.h"

namespace moeplan::kineto {

// The members of an event that a training graph may need.
struct RawEvent {
  std::string phase, category, name;
  double start_us = 0, duration_us = 0;
  std::optional<std::int64_t> process, thread, id;
  std::optional<std::int64_t> correlation, external_id, sequence, forward_thread, stream;
  std::vector<Shape> shapes;
  std::vector<std::string> elements;
  Call call;
  size_t line = 0;
};

// Members of the trace beside its events.
struct TraceHeader {
  std::optional<int> rank;
  size_t events = 0;
};

// Calls `take` for each event, in the order of the file; an error that it returns ends the reading. kInvalidInput,
// with the line: what is read is no JSON, breaks off, is nested too deeply, or has no traceEvents.
StatusOr<TraceHeader> ParseEvents(TraceBytes& bytes, const std::function<Status(RawEvent&)>& take);

}  // namespace moeplan::kineto
