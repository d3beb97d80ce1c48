// One paragraph that a person can check: why the best candidate is the best.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/search/candidate.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

// The place of the fastest of another family than the first's with other tasks; else of the same family. Absent where
// all have the same tasks, or there are none.
std::optional<size_t> RunnerUp(const std::vector<Candidate>& best_first);

// The place of the fastest baseline; absent where none was priced.
std::optional<size_t> FasterBaseline(const std::vector<Candidate>& best_first);

// `best_first` are the candidates of an answer; not empty. Says the best's time and largest terms, how far behind the
// runner-up is and whether their intervals meet, the faster baseline and the speedup over it, and where the answer
// flips; stopped, it leaves out the last.
std::string Explain(const std::vector<Candidate>& best_first, const StopSignals& stop = {});

// By how much every use of `key`, contended or not, must be slowed (above 1) or sped up (below 1) in both candidates
// for `other` to end before `best`: the nearest factor to 1 up to a thousandfold either way, slower first. Absent when
// there is none, or none was found before a stop.
std::optional<double> FlipFactor(const Candidate& best, const Candidate& other, const CostKey& key,
                                 const StopSignals& stop = {});

}  // namespace moeplan::planner
