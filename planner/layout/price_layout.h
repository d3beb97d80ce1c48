// Prices one step of a given layout, as a ranking of layouts prices each.
#pragma once

#include <memory>
#include <string>

#include "models/cost/profile.h"
#include "models/layout/step_answer.h"
#include "models/status.h"
#include "planner/layout/price_rules.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

class CostBook;

// The MoE layers run as the best plan that leaves room for the rest, of those that the question allows; where none
// does, as the one that needs least, and missing_bytes says what a GPU lacks.
//
// Under Lancet's passes each stage's training graph is planned, and the step is never longer than that of the same MoE
// layers without them; what the plan's tensors take beyond the given order's is memory of the running layer. What the
// passes hide has no interval of its own: it stays the same when a cost is taken at an
// end of its interval.
//
// The interval takes the errors of different costs (a group of ranks, products, the MoE layer as planned) for
// independent and those of one cost for the same wherever it is asked: the step's changes with each cost at the end of
// its own interval are added in squares, and with them what the sum of the parts is known to miss.
//
// kInvalidInput: the request is wrong, the layout breaks a rule (layout_rules.h), or it has no price (the message names
// what the profile lacks). kUnimplemented: a model with an encoder. kCancelled. Requires a validated profile. Pure.
StatusOr<StepAnswer> PriceLayout(const StepQuestion& question, const Profile& profile, const StopSignals& stop = {},
                                 const PriceRules& rules = {});

// The warning of a step under Lancet's passes that MoE layers which are planned one by one make shorter; empty: none.
// Requires `answer` to be PriceLayout's of the question.
std::string FasterLayers(const StepQuestion& question, const StepAnswer& answer, const Profile& profile,
                         const StopSignals& stop = {});

struct BareStep {
  double step_s = 0, missing_bytes = 0;  // What a GPU lacks; 0: it fits.
};

// Prices many layouts of one model on one number of GPUs and in one precision, whose costs are looked up once: step and
// memory alone, as PriceLayout has them. Not thread-safe. The profile is copied.
class LayoutPricer {
 public:
  LayoutPricer(const LayoutRequest& request, const Profile& profile);
  ~LayoutPricer();

  // Errors as PriceLayout's. Requires the request's model, GPUs and precision.
  StatusOr<BareStep> Price(const StepQuestion& question, const StopSignals& stop = {});

 private:
  const LayoutRequest request_;
  const Profile measured_, profile_;
  std::unique_ptr<CostBook> book_;
};

// How many times as long `other` takes as `one`: two layouts or schedules of one model on one cluster.
//
// Never two intervals subtracted: a cost that both steps have errs in both alike, so for each cost the ratio is taken
// with both steps at the same end of it, and the changes are added in squares. MoE layers that both run alike are one
// such cost. What the sum of the parts misses is mostly the same for both; what differs between layouts was found on
// A100 steps, as for a step's interval. The same question twice is 1, for sure. Errors as PriceLayout's, of `one`
// first.
StatusOr<StepRatio> CompareLayouts(const StepQuestion& one, const StepQuestion& other, const Profile& profile,
                                   const StopSignals& stop = {}, const PriceRules& rules = {});

}  // namespace moeplan::planner
