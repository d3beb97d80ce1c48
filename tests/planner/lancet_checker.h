// Checks an answer to a training graph by the contract's words alone: on the JSON of graph and answer, with nothing of
// the planner. Every time has to be in the graph.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace moeplan {

// Launches by name, such as "id" or "id#2", and the parts of each cut instruction's range by its first id.
struct PlainSchedule {
  std::vector<std::string> order;
  struct Range {
    int first = 0, last = 0, parts = 1;
  };
  std::vector<Range> ranges;
};

class LancetChecker {
 public:
  explicit LancetChecker(const nlohmann::json& graph);

  // What is wrong with the answer; empty: nothing.
  std::string Complaint(const nlohmann::json& answer) const;

  // The end of the timeline of an order; negative where each stream waits for the other.
  double ReplayS(const PlainSchedule& schedule) const;
  PlainSchedule Given() const;

  // Whether the instructions may be cut as one range, groups, length and its way back included.
  bool MayBeCut(int first, int last) const;
  // Whether the weight gradient may run beside the all-to-all.
  bool MayRunBeside(int gradient, int exchange) const;
  // The smallest end over all sets of ranges in all numbers of parts, and all places of weight gradients that some
  // order satisfies.
  double BruteForceS() const;
  // The largest sum of min(all-to-all, its weight gradients) over all assignments.
  double BruteForceOverlapS() const;

  double PartS(int instruction, int parts) const;
  int size() const { return static_cast<int>(instructions_.size()); }
  bool IsWeightGradient(int i) const { return weight_gradient_[i]; }
  bool IsBackwardExchange(int i) const { return Op(i) == "ALL_TO_ALL" && !Forward(i); }

 private:
  const std::string& Id(int i) const { return ids_[i]; }
  const std::string& Op(int i) const { return ops_[i]; }
  bool Forward(int i) const { return forward_[i]; }
  const std::vector<int>& ProducersOf(int i) const { return producers_[i]; }
  bool Depends(int later, int earlier) const;
  bool AxesFit(int first, int last) const;
  bool LooksAtWholeBatch(int i) const;
  bool GoesBackOver(int i, int first, int last) const { return forward_of_[i] >= first && forward_of_[i] <= last; }
  bool WayBackMayBeCut(int first, int last) const;
  bool InsideLayer(int i) const;
  bool OnBorders(int first, int last) const;
  // The launches of ranges, and of weight gradients where they are put: `beside` has the all-to-all of each, or -1. No
  // order satisfies all places: none.
  PlainSchedule Build(const std::vector<PlainSchedule::Range>& ranges, const std::vector<int>& beside) const;
  // Instructions in parts, stage by stage.
  std::vector<std::string> InParts(const std::vector<int>& instructions, int parts) const;
  // The range of each instruction, or the way back of one; where it is cut in neither, one of no parts but the whole.
  std::vector<PlainSchedule::Range> RangeOfEach(const PlainSchedule& schedule) const;
  void TryRanges(int from, std::vector<PlainSchedule::Range>& ranges, double& best_s) const;
  void TryPlaces(size_t next, const std::vector<int>& gradients, std::vector<int>& beside,
                 const std::vector<PlainSchedule::Range>& ranges, double& best_s) const;
  bool IsTopological(const PlainSchedule& schedule) const;

  nlohmann::json graph_;
  std::vector<nlohmann::json> instructions_;
  std::map<std::string, int> by_id_;
  std::vector<std::string> ids_, ops_;
  std::vector<bool> forward_, weight_gradient_;
  std::vector<int> forward_of_;  // -1: it names none.
  std::vector<std::vector<int>> producers_;
  std::vector<std::vector<double>> part_s_;  // For k = 1, 2, ...
};

}  // namespace moeplan
