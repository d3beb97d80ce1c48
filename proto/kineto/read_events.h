// Reads the events of one step out of a trace.
#pragma once

#include <optional>

#include "models/status.h"
#include "proto/kineto/events.h"
#include "proto/kineto/trace_text.h"

namespace moeplan::kineto {

// The step ProfilerStep#`step`; absent: the last that has a backward pass and, where any step has an optimizer's, that
// too. A trace without ProfilerStep is one step, unless several optimizer steps are in it.
//
// kInvalidInput, naming the line where there is one: the text is no JSON or breaks off, it is not what Kineto writes,
// it is too long, there is no such step, or a step has too many events.
StatusOr<Trace> ReadStep(const OpenTrace& open, std::optional<int> step);

}  // namespace moeplan::kineto
