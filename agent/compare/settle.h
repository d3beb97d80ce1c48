// Near ties of predictions, settled by the clock. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/compare/contest.h"

namespace moeplan::agent {

// Of the contenders with another graph than the chosen's the first of another family, else the first: the runner-up of
// the explanation, where it runs. Absent where there is none, or the 90 % intervals do not meet or are not known.
std::optional<size_t> NearTieOf(const std::vector<Contender>& contenders);

// The fastest of the entrants against the chosen, or against the next where it is the chosen, round by round: drift of
// the machine hits both alike. Requires a near tie and rounds of all entrants.
v1::Settlement Settle(const Contest& contest);

// "PARM_S2 N=4": as tables name it.
std::string Label(const v1::MeasuredCandidate& candidate);

// "PARM_S1 was predicted too close to PARM_S2 to tell: ..."; empty where there was nothing to settle.
std::string SettlementSentence(const v1::ValidatedWorkload& workload);

}  // namespace moeplan::agent
