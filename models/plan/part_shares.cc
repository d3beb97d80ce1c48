#include "models/plan/part_shares.h"

#include <algorithm>
#include <initializer_list>

namespace moeplan {
namespace {

// Whether counts of rows are known where they are needed: they go ahead of all-to-alls, or nothing is sent by any.
bool SaysCounts(const TrainingGraph& graph) {
  const auto sends = [](const Instruction& one) { return one.op == InstructionOp::kAllToAll; };
  const auto counts = [](const Instruction& one) { return one.counts_bytes.has_value(); };
  return std::ranges::any_of(graph.instructions, counts) || std::ranges::none_of(graph.instructions, sends);
}

// Whether rows of parts follow from it; a graph's workload is as it was given.
bool Routes(const Workload& workload) {
  const Layer& layer = workload.layer;
  const Layout& layout = workload.layout;
  const int least = std::min({layer.batch, layer.sequence_length, layer.top_k, layout.tensor_parallel,
                              layout.context_parallel, layout.expert_parallel, layout.expert_sharding_parallel});
  return least >= 1 && layer.top_k <= layer.experts && layout.expert_parallel <= layer.experts &&
         layout.context_parallel <= layer.sequence_length && layer.capacity_factor >= 0;
}

}  // namespace

PartShares::PartShares(const TrainingGraph& graph) {
  if (graph.workload && Routes(*graph.workload) && SaysCounts(graph)) rows_.emplace(*graph.workload);
}

double PartShares::Of(const Instruction& one, int parts, CutAxis axis) const {
  return axis == CutAxis::kSamples && IsUneven(one, parts) ? rows_->ShareOfWhole(parts) : 1.0 / parts;
}

std::optional<double> PartShares::EvenS(const Instruction& one, int parts) const {
  if (!IsUneven(one, parts)) return std::nullopt;
  const double whole_s = one.time_s.value_or(one.part_times_s.front()), part_s = one.part_times_s[parts - 1];
  const double share = rows_->ShareOfWhole(parts);
  if (share >= 1) return std::nullopt;
  // Times that were measured, or made up, may lie on no such line.
  const double even_s = whole_s + (part_s - whole_s) * (1 - 1.0 / parts) / (1 - share);
  return std::clamp(even_s, std::min(part_s, whole_s / parts), std::max(part_s, whole_s));
}

bool PartShares::IsUneven(const Instruction& one, int parts) const {
  return rows_ && parts > 1 && one.phase == Pass::kForward && HasUnevenParts(one.op) &&
         parts <= static_cast<int>(one.part_times_s.size());
}

}  // namespace moeplan
