// What to set for a training job: of all layouts of its model, and all ways to run each that training systems have, the
// one whose step is predicted to be the shortest, with the reasons.
//
// Three rounds. Layouts are ranked (planner/layout/rank_layouts.h) for each of a few ways to run them that decide which
// layouts are good: what is computed again, virtual stages, the all-to-all or a dispatcher. The best of these are run
// in every way: each dispatcher, exchanges beside another micro-batch or not, each part that may be computed again. Of
// the winner each decision is then put back alone, which says what it gains.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "models/cost/profile.h"
#include "models/layout/step_answer.h"
#include "models/status.h"

namespace moeplan::planner {

struct AdviceRequest {
  ModelConfig model;
  int gpus = 0, global_batch = 0, sequence_length = 0;
  Precision precision = Precision::kBf16;
  int zero_stage = 1;
  // The layout to compare with; absent: the usual default (UsualLayout), or where none fits the answer itself. What is
  // the job's and no decision (capacity, layers that predict further tokens, attention, the precision of gradients) is
  // then its own; its precision must be the request's.
  std::optional<StepQuestion> mine;
  // Given, nothing of `mine` changes but what a running job can change: whether all layers are computed again in place
  // of what `mine` computes again, and of how many layers of a virtual stage. Requires `mine`.
  struct Live {
    bool recompute = false, recompute_layers = false;
  };
  std::optional<Live> live_only;
  // Whether the training system takes the layout; empty: it takes all. Called from one thread.
  std::function<bool(const StepQuestion&)> takes;
  int threads = 1;
};

// A cost and how much of the answer's uncertainty is due to it.
struct CostToMeasure {
  CostKey key;
  double share = 0;  // Of the squares of what the step moves by, its own alone.
};

struct AdvisedLayout {
  StepQuestion question;  // With the schedule that its MoE layers have.
  StepAnswer step;
};

struct LayoutAdvice {
  AdvisedLayout best;
  AdvisedLayout mine;
  bool mine_is_usual = false;
  StepRatio gain;  // Of mine over best.
  // The next best with other degrees, another dispatcher, overlap or recomputation; and how many times as long it
  // takes.
  std::optional<AdvisedLayout> runner_up;
  StepRatio runner_up_ratio;
  std::vector<std::string> reasons;  // Three at most.
  std::vector<CostToMeasure> measure_next;
  int considered = 0;
  std::vector<std::string> warnings;
};

// What is usual where nobody chose: experts over the GPUs of a node or domain, no tensor or context parallelism, one
// sample a micro-batch, the all-to-all with nothing beside it, and the fewest pipeline stages with which it fits, with
// as little computed again as that takes. kInfeasible: no such layout fits.
StatusOr<StepQuestion> UsualLayout(const AdviceRequest& request, const Profile& profile);

// The settings that the source of a layout does not name.
struct OpenSettings {
  bool dispatcher = false;
  bool overlap = false;  // Exchanges of experts beside another micro-batch.
  bool recompute = false;
};
// `request.mine`, which is required, with what is open set to whatever is fastest of what fits and the training system
// takes, as Advise sets it for its own layouts. Absent: nothing does.
std::optional<StepQuestion> Completed(const AdviceRequest& request, const OpenSettings& open, const Profile& profile);

// A dispatcher runs over the transport that `mine` has it on, else over the one that most of its measured costs are of,
// else over NCCL's.
//
// kInvalidInput: the request is wrong, or nothing has a price. kInfeasible: nothing fits that the training system
// takes. kCancelled. Requires a validated profile. The same arguments give the same answer.
StatusOr<LayoutAdvice> Advise(const AdviceRequest& request, const Profile& profile, std::stop_token cancelled = {});

}  // namespace moeplan::planner
