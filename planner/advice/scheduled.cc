#include "planner/advice/scheduled.h"

#include "models/text.h"
#include "models/time_text.h"
#include "planner/lancet/stage_gains.h"
#include "planner/layout/price_layout.h"
#include "planner/wording.h"

namespace moeplan::planner {
namespace {

constexpr double kWorthSaying = 0.01;  // A share of the step.

// Whether moeplan.torch runs such a step: it keeps activations (python/moeplan/torch/tracer.py), exchanges rows by
// all-to-alls of its own, and multiplies in BF16 or more, each product whole.
bool RunsIt(const LayoutRequest& request) {
  return request.recompute == Recompute::kNone && request.dispatcher == Dispatcher::kAllToAll &&
         request.precision == Precision::kBf16 && !request.overlaps_tensor;
}

}  // namespace

StatusOr<std::string> ScheduledText(const StepQuestion& question, double step_s, const Profile& profile,
                                    const StopSignals& stop) {
  StepQuestion lancet = question;
  lancet.schedule.reset(), lancet.chunks.reset(), lancet.partition_degree.reset();
  lancet.lancet = true;
  if (!RunsIt(question.request) || !CheckLancet(lancet).ok()) return std::string();
  const StatusOr<StepAnswer> step = PriceLayout(lancet, profile, stop);
  if (stop.Requested()) return Cancelled("advice was cancelled");
  if (!step.ok() || step->missing_bytes > 0) return std::string();
  const double lancet_s = step->layout.step_time_s, saved = 1 - lancet_s / step_s;
  if (saved <= kWorthSaying) return std::string();
  return StrCat("weight gradients and ranges under moeplan.torch.scheduled would save ", Percent(saved), " more (",
                Duration(lancet_s), "); settings of training systems cannot say so");
}

}  // namespace moeplan::planner
