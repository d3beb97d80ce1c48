// Values that live in one column as JSON text. What is not finite is written as proto3 does: "Infinity", "-Infinity",
// "NaN". All other numbers read back bit for bit.
//
// Writing throws nlohmann's error 316 for a text that is not UTF-8; reading throws nlohmann's errors or DamagedRow for
// what cannot have been written here. Call them inside Guarded.
#pragma once

#include <string>
#include <vector>

#include "models/cost/cost_model.h"
#include "models/cost/samples.h"

namespace moeplan::db {

std::string CostModelText(const CostModel& model);
CostModel CostModelOf(const std::string& text);

std::string TimesText(const std::vector<double>& times_s);
std::vector<double> TimesOf(const std::string& text);

std::string ProvenanceText(const Provenance& provenance);
Provenance ProvenanceOf(const std::string& text);

}  // namespace moeplan::db
