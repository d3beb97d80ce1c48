#include "planner/lancet/timed_graph.h"

#include <optional>

#include "models/measurement/cost_key.h"
#include "models/plan/part_shares.h"
#include "models/plan/step_tasks.h"
#include "models/text.h"

namespace moeplan::planner {
namespace {

class Timer {
 public:
  Timer(const TrainingGraph& graph, const Profile* profile) : graph_(graph) {
    if (profile != nullptr) pricer_.emplace(*profile);
  }

  StatusOr<std::vector<double>> PartsOf(int i) {
    const Instruction& one = graph_.instructions[i];
    std::vector<double> part_s;
    for (int k = 1; k <= MostPartsOf(one, graph_.max_parts); ++k) {
      const std::optional<double> known_s = KnownPartS(one, k);
      if (!known_s) RETURN_IF_ERROR(CheckPriceable(i, k));
      part_s.push_back(known_s ? *known_s : ProfileS(one, k));
    }
    return part_s;
  }

  // The collectives that the profile lacks.
  Status Missing() const {
    if (!pricer_ || pricer_->missing().empty()) return OkStatus();
    const std::vector<CostKey> missing = pricer_->missing();
    const auto& key = std::get<CollectiveKey>(missing.front());
    return NotFound(MissingReason(missing, {.expert_parallel = key.group.size}));
  }
  const PriceNotes* notes() const { return pricer_ ? &pricer_->notes() : nullptr; }

 private:
  Status CheckPriceable(int i, int k) const {
    const Instruction& one = graph_.instructions[i];
    const std::string at = StrCat("instructions[", i, "] (", one.id, ")");
    const std::string what = k == 1 ? "its timeS" : StrCat("partTimesS of ", k, " parts");
    if (!pricer_) {
      return InvalidInput(StrCat(at, ": found neither ", what,
                                 " nor a profile, expected one of both (--profile, --db "
                                 "or --planner",
                                 k == 1 ? ")" : "), or maxParts at most " + StrCat(k - 1)));
    }
    const char* lacks = !one.bytes            ? "bytes"
                        : !one.group_size     ? "groupSize"
                        : !one.ranks_per_node ? "ranksPerNode"
                                              : "";
    if (*lacks == '\0') return OkStatus();
    return InvalidInput(StrCat(at, ".", lacks, ": found nothing, expected a number or ", what));
  }

  double ProfileS(const Instruction& one, int k) {
    const Work work = CollectiveWork(one, k);
    return pricer_->Price(work.key, work.size).time_s;
  }

  const TrainingGraph& graph_;
  std::optional<Pricer> pricer_;
};

// Parts of an instruction where a range is cut along the capacity; empty where they are as along samples.
std::vector<double> EvenPartsOf(const PartShares& shares, const Instruction& one, const std::vector<double>& part_s) {
  std::vector<double> even_part_s = part_s;
  for (size_t k = 1; k <= part_s.size(); ++k) {
    even_part_s[k - 1] = shares.EvenS(one, static_cast<int>(k)).value_or(part_s[k - 1]);
  }
  return even_part_s == part_s ? std::vector<double>() : even_part_s;
}

}  // namespace

bool NeedsProfile(const TrainingGraph& graph) {
  for (const Instruction& one : graph.instructions) {
    for (int k = 1; k <= MostPartsOf(one, graph.max_parts); ++k) {
      if (!KnownPartS(one, k)) return true;
    }
  }
  return false;
}

StatusOr<TimedGraph> TimeGraph(const TrainingGraph& graph, const Profile* profile, PriceNotes& notes) {
  TimedGraph timed = {.max_parts = graph.max_parts, .group_s = graph.group_s, .max_range_s = graph.max_range_s};
  std::vector<std::vector<int>> producers = ProducersOf(graph);
  const std::vector<int> forwards = ForwardsOf(graph);
  const std::vector<bool> inside_layers = InsideLayers(graph);
  const PartShares shares(graph);
  Timer timer(graph, profile);
  for (int i = 0; i < static_cast<int>(graph.instructions.size()); ++i) {
    const Instruction& one = graph.instructions[i];
    TimedInstruction instruction = {
        .op = one.op, .phase = one.phase, .stream = StreamOf(one), .weight_gradient = one.weight_gradient};
    instruction.whole_batch_gate = one.gate == GateKind::kBatchPrioritized || one.gate == GateKind::kExpertChoice;
    instruction.producers = std::move(producers[i]);
    instruction.forward = forwards[i];
    instruction.inside_layer = inside_layers[i];
    ASSIGN_OR_RETURN(instruction.part_s, timer.PartsOf(i));
    instruction.even_part_s = EvenPartsOf(shares, one, instruction.part_s);
    timed.instructions.push_back(std::move(instruction));
  }
  RETURN_IF_ERROR(timer.Missing());
  if (timer.notes() != nullptr) notes.Merge(*timer.notes());
  return timed;
}

}  // namespace moeplan::planner
