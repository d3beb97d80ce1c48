// How long a whole training step takes with what each of the four papers has, and with the best of all of it.
#pragma once

#include <string>
#include <vector>

#include "models/cost/profile.h"
#include "models/layout/step_answer.h"
#include "models/status.h"

namespace moeplan::planner {

// One way to run the step, in this order, those that apply:
//
//   one piece          MoE layers as training frameworks have them, one piece after the other, nothing beside it.
//   parm, monta,       Every MoE layer by what the rule chooses for it (planner/rules/choices.h), in equal pieces by
//   schemoe            direct all-to-alls, as a row of a ranking can say it.
//   lancet             Both passes on the graph of each stage: weight gradients and ranges of the whole step.
//   layers             Every MoE layer by the best plan of a layer.
//   joint              The fastest of all these.
struct StepAlternative {
  std::string name;
  Family family = Family::kBaseline;  // How MoE layers run.
  int pieces = 1;
  double step_s = 0;
};

// Requires a layout whose graph Lancet's passes can plan (CheckLancet); `question` says nothing of a schedule. Errors
// are PriceLayout's. A rule that has no answer, or whose layers do not fit, is left out. Requires a validated profile.
// Pure.
StatusOr<std::vector<StepAlternative>> StepAlternatives(const StepQuestion& question, const Profile& profile);

}  // namespace moeplan::planner
