// Layouts and what tells them apart, in words. Pure.
#pragma once

#include <string>
#include <vector>

#include "models/layout/step_answer.h"

namespace moeplan::planner {

// "TP 1, EP 64, CP 1, PP 4, DP 256, micro-batch 2, 4 virtual stages, DEEPEP, overlap, recompute MOE_ACT"; what is at
// its default is left out behind the degrees.
std::string LayoutText(const StepQuestion& question);

// One decision of a layout: how it was taken, what it would be instead, and the layout with it alone put back.
struct Decision {
  std::string taken, instead;
  StepQuestion without;
};

// Each decision in which `other` differs, put back to what it is there.
std::vector<Decision> DecisionsBetween(const StepQuestion& one, const StepQuestion& other);
// The same, and further decisions of `one` itself that could have been taken otherwise: half the ranks of experts,
// pipeline stages and of the micro-batch, and the all-to-all and nothing beside it.
std::vector<Decision> DecisionsOf(const StepQuestion& one, const StepQuestion& other);

// "1.12 times as long (90 %: 1.05 to 1.20)".
std::string RatioText(const StepRatio& ratio);
// ", mostly in exchanges of experts (4.20 s instead of 2.10 s)": the part that makes most of the difference; empty
// where none does.
std::string WhereText(const StepAnswer& one, const StepAnswer& other);

}  // namespace moeplan::planner
