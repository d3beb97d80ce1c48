#include "agent/compare/run_step.h"

#include <algorithm>
#include <vector>

#include "agent/compare/run_plan.h"
#include "models/fit/statistics.h"
#include "models/plan/step_tasks.h"
#include "proto/convert/plan.h"
#include "proto/convert/training_graph.h"

namespace moeplan::agent {
namespace {

// A step has hundreds of collectives in a row, each with its own deadline.
constexpr double kStepDeadlines = 20;
constexpr int kGraph = 0;

}  // namespace

LancetAnswer UnscheduledPlan(const GraphPlanAnswer& answer) {
  LancetAnswer plan = {.unscheduled_time_s = answer.lancet.unscheduled_time_s,
                       .time_s = answer.lancet.unscheduled_time_s};
  for (const Instruction& one : answer.graph.instructions) plan.order.push_back(one.id);
  return plan;
}

StatusOr<v1::RunReport> RunStep(Fleet& fleet, const GraphPlanAnswer& answer, StepOrder order) {
  const LancetAnswer plan = order == StepOrder::kLancet ? answer.lancet : UnscheduledPlan(answer);
  RETURN_IF_ERROR(BuildStepTasks(answer.graph, plan).status());
  v1::RankCommand prepare;
  prepare.mutable_prepare()->set_graph(kGraph);
  *prepare.mutable_prepare()->mutable_step() = ToProto(answer.graph);
  *prepare.mutable_prepare()->mutable_order() = ToProto(plan);
  prepare.mutable_prepare()->mutable_order()->clear_timeline();
  RETURN_IF_ERROR(fleet.Call(prepare, "prepare the training step", kPrepareS).status());

  const int warm_ups = fleet.repeats_times() ? 0 : kWarmUpRuns, runs = fleet.repeats_times() ? 1 : kMeasuredRuns;
  std::vector<double> times_s;
  v1::RunReport report;
  for (int i = 0; i < warm_ups + runs; ++i) {
    v1::RankCommand run;
    run.mutable_run()->set_graph(kGraph);
    run.mutable_run()->set_timeline(i + 1 == warm_ups + runs);
    ASSIGN_OR_RETURN(
        const std::vector<v1::RankReply> replies,
        fleet.CallInStep(run, "run the training step", kPrepareS + kStepDeadlines * fleet.collective_deadline_s()));
    double slowest_s = 0;
    for (const v1::RankReply& reply : replies) {
      slowest_s = std::max(slowest_s, reply.ran().time_s());
      if (!run.run().timeline()) continue;
      v1::RankTimeline& rank = *report.add_ranks();
      rank.set_rank(report.ranks_size() - 1);
      *rank.mutable_timeline() = reply.ran().timeline();
    }
    if (i >= warm_ups) times_s.push_back(slowest_s);
  }
  v1::RankCommand release;
  release.mutable_release();
  RETURN_IF_ERROR(fleet.Call(release, "release the training step", kPrepareS).status());
  report.set_schedule(order == StepOrder::kLancet ? v1::Schedule::LANCET : v1::Schedule::UNSCHEDULED);
  report.set_predicted_time_s(plan.time_s);
  report.set_measured_time_s(Median(times_s));
  report.set_spread_s(InterquartileRange(times_s));
  return report;
}

}  // namespace moeplan::agent
