// Lists the knobs that papers would run one layer with: each rule's answer in full, no more than the paper has. Lancet
// is not among them, because its passes are those of a whole step (planner/rules/step_alternatives.h); what stands here
// is the one range of it that a layer has.
#pragma once

#include <string>
#include <vector>

#include "models/cost/profile.h"
#include "models/schedule/knobs.h"
#include "models/workload/workload.h"

namespace moeplan::planner {

// By paper, in this order, those that apply: whose rule could be answered, whose schedule is allowed and, where it is
// known what a device holds, fits it.
//
//   parm     S1, or S2 with SAA, whole (Algorithm 1).
//   monta    O1, O2 or O3 in the chunks that Algorithms 1 to 3 choose.
//   schemoe  PIPELINE in the rule's r pieces, in OptSche's order, by Pipe-A2A where that is allowed, with the request's
//            codecs.
//   range    PIPELINE in as many pieces as Lancet's dynamic programme cuts the range of all-to-all, experts and
//            all-to-all into (§5.1), by DIRECT. Of the forward pass alone, with no other work of the step.
inline constexpr const char* kCutRange = "range";
struct PaperChoice {
  std::string paper;
  Knobs knobs;
};
// Requires a workload resolved against profile.cluster, and a validated profile. Pure.
std::vector<PaperChoice> ChoicesOfPapers(const Workload& workload, const Profile& profile);

}  // namespace moeplan::planner
