// Questions about one step of the small model, and a profile that answers them by hand.
#pragma once

#include <algorithm>
#include <string>

#include "models/layout/step_answer.h"
#include "planner/layout/layout_space.h"
#include "tests/planner/small_layouts.h"

namespace moeplan::planner {

inline StepQuestion QuestionOf(const LayoutRequest& request, const Layout& layout, int micro_batch = 1) {
  return {.request = request,
          .layout = layout,
          .micro_batch = micro_batch,
          .horizontal_contexts = {},
          .schedule = {},
          .chunks = {},
          .partition_degree = {},
          .lancet = false};
}

// The question of a point, the orientation of its contexts included.
inline StepQuestion QuestionAt(const LayoutRequest& request, const LayoutPoint& point) {
  StepQuestion question = QuestionOf(request, point.layout, point.micro_batch);
  question.horizontal_contexts = point.horizontal_contexts;
  return question;
}

inline double SumOf(const StepAnswer& answer, double StepPartTime::*field) {
  double sum = 0;
  for (const StepPartTime& part : answer.parts) sum += part.*field;
  return sum;
}

inline const StepPartTime* Find(const StepAnswer& answer, const std::string& part) {
  const auto found = std::ranges::find(answer.parts, part, &StepPartTime::part);
  return found == answer.parts.end() ? nullptr : &*found;
}

// A profile that measured what a step consists of: products at 1e12 flop/s forward and half of that to each gradient,
// attention at 5e11 and its gradient at 1e11 of the forward flops, and what moves memory at 1 s a byte, each kernel
// once.
inline Profile ProfileOfTheWholeStep() {
  Profile profile = SmallProfile();
  for (CollectiveModel& entry : profile.collectives) entry.model = MakeCostModel(AlphaBeta{1e-30, 0});
  const auto add = [&](Kernel kernel, const KernelShape& shape, double flops_per_s) {
    // From less than a row on, so that no product is below what was measured, and none so long that it bounds the
    // others.
    LogLog curve;
    for (double flops = 1; flops < 5e8; flops *= 2) curve.points.push_back({flops, flops / flops_per_s});
    profile.kernels.push_back({{.kernel = kernel, .shape = shape}, MakeCostModel(curve)});
  };
  const KernelShape linear = {.in_features = 32, .out_features = 32, .experts = 1};
  const KernelShape scores = {.heads = 4, .kv_heads = 2, .query_key_dim = 8, .value_dim = 8, .sequence = 64};
  profile.kernels = {};
  add(Kernel::kLinear, linear, 1e12);
  add(Kernel::kLinearInputGradient, linear, 5e11);
  add(Kernel::kLinearWeightGradient, linear, 5e11);
  add(Kernel::kAttention, scores, 5e11);
  add(Kernel::kAttentionGradient, scores, 1e11);
  return profile;
}

// Every cost is in proportion to the bytes or flops, each collective's and each group's by another factor.
inline Profile ProportionalProfile() {
  Profile profile = SmallProfile();
  profile.collectives.clear();
  double per_byte = 1e-9;
  for (const Collective collective :
       {Collective::kAllToAll, Collective::kAllGather, Collective::kReduceScatter, Collective::kAllReduce}) {
    for (const GroupShape& group : {GroupShape{2, 2}, {2, 1}, {4, 4}, {4, 2}, {4, 1}, {8, 4}}) {
      profile.collectives.push_back(Line(Over(collective, group), 0, per_byte *= 1.1));
    }
  }
  profile.kernels = {Line(Kernel::kExpertGemm, 0, 2e-12), Line(Kernel::kGate, 0, 1e-11),
                     Line(Kernel::kPermute, 0, 1e-11), Line(Kernel::kDeviceCopy, 0, 1e-11)};
  return profile;
}

}  // namespace moeplan::planner
