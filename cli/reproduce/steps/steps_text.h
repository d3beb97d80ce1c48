// Reproduced steps for people: rows, sets, and what constants move.
#pragma once

#include <string>

#include "moeplan/v1/reproduced_steps.pb.h"

namespace moeplan::cli {

std::string Text(const v1::ReproducedSteps& reproduced);

}  // namespace moeplan::cli
