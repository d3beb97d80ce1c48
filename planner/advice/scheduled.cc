#include "planner/advice/scheduled.h"

#include "models/text.h"
#include "models/time_text.h"
#include "planner/lancet/stage_gains.h"
#include "planner/layout/price_layout.h"
#include "planner/wording.h"

namespace moeplan::planner {
namespace {

constexpr double kWorthSaying = 0.01;  // A share of the step.

}  // namespace

StatusOr<std::string> ScheduledText(const StepQuestion& question, double step_s, const Profile& profile,
                                    const StopSignals& stop) {
  StepQuestion lancet = question;
  lancet.schedule.reset(), lancet.chunks.reset(), lancet.partition_degree.reset();
  lancet.lancet = true;
  // The module refuses activations that are computed again (python/moeplan/torch/tracer.py).
  if (question.request.recompute != Recompute::kNone || !CheckLancet(lancet).ok()) return std::string();
  const StatusOr<StepAnswer> step = PriceLayout(lancet, profile, stop);
  if (stop.Requested()) return Cancelled("advice was cancelled");
  if (!step.ok() || step->missing_bytes > 0) return std::string();
  const double lancet_s = step->layout.step_time_s, saved = 1 - lancet_s / step_s;
  if (saved <= kWorthSaying) return std::string();
  return StrCat("weight gradients and ranges under moeplan.torch.scheduled would save ", Percent(saved), " more (",
                Duration(lancet_s), "); settings of training systems cannot say so");
}

}  // namespace moeplan::planner
