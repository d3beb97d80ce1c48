// The names of the contract for what a workload says of gates, phases and capacity, such as "TOP_K". Pure.
#pragma once

#include <string_view>

#include "models/workload/workload.h"

namespace moeplan {

// "?" beyond the last, so that NamedValue (models/own_names.h) reads them, too.
std::string_view Name(GateKind gate);
std::string_view Name(ScoreFunction function);
std::string_view Name(Phase phase);
std::string_view Name(CapacityPassing passing);

}  // namespace moeplan
