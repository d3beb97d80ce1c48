// What a model gives to settings that repeat it. Pure.
#pragma once

#include "models/model/model_config.h"
#include "planner/targets/target.h"

namespace moeplan::planner {

// Every fact of a model that its configuration says.
Facts FactsOf(const ModelConfig& model);

}  // namespace moeplan::planner
