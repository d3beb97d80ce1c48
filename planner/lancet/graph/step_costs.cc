#include "planner/lancet/graph/step_costs.h"

#include <set>
#include <variant>

#include "models/measurement/cost_key.h"

namespace moeplan::planner {
namespace {

bool SumsShards(const StepWork& work, Side side) { return work.shards_bytes > 0 && side == work.shards_side; }

Kernel ProductOf(Side side) {
  if (side == Side::kForward) return Kernel::kLinear;
  return side == Side::kInputGradient ? Kernel::kLinearInputGradient : Kernel::kLinearWeightGradient;
}
Kernel ExpertProductOf(Side side) {
  if (side == Side::kForward) return Kernel::kExpertGemm;
  return side == Side::kInputGradient ? Kernel::kExpertInputGradient : Kernel::kExpertWeightGradient;
}
Kernel KernelOn(Side side, Kernel kernel) { return kernel == Kernel::kExpertGemm ? ExpertProductOf(side) : kernel; }

}  // namespace

StepCosts::StepCosts(const StepSizes& sizes, const Profile& profile)
    : sizes_(sizes),
      book_(profile, sizes.layer.model_dim, sizes.bytes_per_element, {}, sizes.precision),
      of_layer_(book_.ForLayer(sizes_.layer, sizes_.layout, sizes_.dispatching)),
      pricer_(of_layer_),
      rows_(workload()) {}

Workload StepCosts::workload() const {
  Workload workload = {.layer = sizes_.layer, .layout = sizes_.layout};
  if (sizes_.dropless) workload.layer.capacity_factor = 0;
  return workload;
}

std::vector<Work> StepCosts::KernelsOf(const StepWork& work, Side side) {
  CostBook::Asked asked;
  book_.CountInto(&asked);
  (void)TimeS(work, 1, side);
  book_.CountInto(nullptr);
  std::vector<Work> kernels;
  for (const auto& [cost, times] : asked) {
    if (!std::holds_alternative<KernelKey>(cost.first)) continue;
    kernels.insert(kernels.end(), times, {cost.first, cost.second});
  }
  if (work.kernel)
    kernels.push_back({KeyOf(KernelOn(side, *work.kernel), sizes_.layer, sizes_.layout), work.SizeOn(side)});
  if (SumsShards(work, side))
    kernels.push_back({KeyOf(Kernel::kPermute, sizes_.layer, sizes_.layout), work.shards_bytes});
  return kernels;
}

double StepCosts::ExchangeS(const Exchange& exchange, double share, Side side) {
  const std::optional<InstructionOp> op = exchange.OpOn(side);
  if (!op) return 0;
  if (!exchange.all_to_all_bytes) {
    return CollectiveS(*op, exchange.group, share * exchange.BytesOn(side), exchange.stride);
  }
  const CollectiveKey in_its_place = {.collective = Collective::kAllToAll, .group = exchange.group};
  return pricer_.Price(in_its_place, share * *exchange.all_to_all_bytes).time_s;
}

double StepCosts::CollectiveS(InstructionOp op, const GroupShape& group, double bytes, int stride) {
  if (op == InstructionOp::kSend) return book_.SendS(group, bytes, stride);
  return book_.CollectiveS(*CollectiveOf(op), group, bytes, stride);
}

StepWork StepCosts::Optimizer(double dense, int dense_shards, double experts, int expert_shards) const {
  const auto bytes = [&](double parameters, int shards) {
    return OptimizerBytes(parameters, shards, sizes_.bytes_per_element, sizes_.gradient_bytes);
  };
  const MovedWork moved = {.kernel = Kernel::kOptimizer,
                           .forward_bytes = bytes(dense, dense_shards) + bytes(experts, expert_shards),
                           .forward_launches = 2};
  return {.block = {.moved = {moved}}};
}

double StepCosts::TimeS(const StepWork& work, double share, Side side) {
  double time_s = 0;
  for (LinearWork linear : work.block.linears) {
    linear.rows *= share;
    time_s += book_.LinearS(ProductOf(side), linear);
  }
  if (work.block.attention) {
    AttentionWork attention = *work.block.attention;
    attention.flops *= share;
    time_s += book_.AttentionS(side == Side::kForward ? Kernel::kAttention : Kernel::kAttentionGradient, attention);
  }
  for (const MovedWork& moved : work.block.moved) {
    time_s += side == Side::kForward
                  ? book_.MovedS(moved.kernel, share * moved.forward_bytes, moved.forward_launches)
                  : book_.MovedS(moved.kernel, share * moved.backward_bytes, moved.backward_launches);
  }
  if (work.kernel) {
    time_s += pricer_.Price(KeyOf(KernelOn(side, *work.kernel), sizes_.layer, sizes_.layout), share * work.SizeOn(side))
                  .time_s;
  }
  if (SumsShards(work, side)) {
    time_s += pricer_.Price(KeyOf(Kernel::kPermute, sizes_.layer, sizes_.layout), share * work.shards_bytes).time_s;
  }
  return work.exchange ? time_s + ExchangeS(*work.exchange, share, side) : time_s;
}

Status StepCosts::Missing() const {
  std::set<CostKey> missing = book_.missing();
  for (const CostKey& key : pricer_.missing()) missing.insert(key);
  return missing.empty() ? OkStatus() : NotFound(MissingReason({missing.begin(), missing.end()}, sizes_.layout));
}

PriceNotes StepCosts::notes() const {
  PriceNotes notes = book_.notes();
  notes.Merge(pricer_.notes());
  return notes;
}

}  // namespace moeplan::planner
