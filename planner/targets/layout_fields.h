// The fields of a layout that targets say or do not say, with what an absent one means: those of moeplan.v1.StepLayout
// (contract, "One layout, one step"), and "chunks", "partitionDegree" and "allToAll", which stand in
// its plan.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

namespace moeplan::planner {

struct LayoutField {
  std::string_view name;
  nlohmann::json default_value;  // Null: none; of horizontalContexts, what MoNTA's rule says.
  std::string_view words;        // For people.
  std::string_view matters;      // Where it says anything: an Expression over fields and facts; empty: always.
};
std::span<const LayoutField> LayoutFields();

inline constexpr std::string_view kPlanFields[] = {"chunks", "partitionDegree", "allToAll"};

// Null: there is no such field.
const nlohmann::json* DefaultOf(std::string_view field);

}  // namespace moeplan::planner
