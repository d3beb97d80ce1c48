// What the measured runs of a workload's candidates say: who was fastest, how far the predictions were off, and what
// choosing another would have gained (contract, "RunReport and ValidationReport"). Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/plan/plan.h"
#include "models/schedule/task_graph.h"
#include "moeplan/v1/report.pb.h"

namespace moeplan::agent {

// Candidates whose task graphs are the same run as one.
struct Contender {
  Plan plan;
  TaskGraph graph;
  int ready = -1;  // The graph's number on the bench, shared by equals.
  double measured_s = 0;
};

using Times = std::vector<std::vector<double>>;  // By graph, one a round.

// One workload under comparison.
struct Contest {
  std::vector<Contender> contenders;  // The chosen plan first, the others by prediction.
  std::vector<size_t> finalists;      // See FinalistsOf.
  std::optional<size_t> near_tie;     // See NearTieOf (settle.h).
  Times final_times_s;                // By entrant; each as many rounds.
  bool repeats_times = false;         // As Fleet's: a single round of a single run says all.

  // Who runs in the last rounds: the finalists, and the near tie where its graph is not among theirs.
  std::vector<size_t> Entrants() const;
};

// The numbers of the contenders' graphs, each once, in the order in which they first come.
std::vector<int> DistinctGraphs(const std::vector<Contender>& contenders);

// Gives each contender the median of its graph's times, where `graphs` names it.
void SetMeasured(std::vector<Contender>& contenders, const std::vector<int>& graphs, const Times& times_s);

// The chosen and, where it is another graph, the fastest.
std::vector<size_t> FinalistsOf(const std::vector<Contender>& contenders);

// The entrants' last rounds replace what was measured of them before, and give the regret. A near tie is settled.
v1::ValidatedWorkload Judge(const std::string& name, Contest contest);

v1::MeasuredCandidate ToMessage(const Contender& contender);

// Fills in all but the workloads, of which there is at least one.
void Summarise(v1::ValidationReport& report);

}  // namespace moeplan::agent
