#include "agent/compare/run_plan.h"

#include <algorithm>
#include <limits>

#include "models/fit/statistics.h"
#include "models/text.h"
#include "proto/convert/plan.h"
#include "proto/convert/workload.h"

namespace moeplan::agent {
namespace {

// A run holds up to this many collectives in a row, each with its own deadline.
constexpr double kRunDeadlines = 4;
constexpr double kShareForGraphs = 0.8;  // Of a device's memory; weights and libraries have the rest.

}  // namespace

StatusOr<std::vector<v1::RankReply>> Bench::Call(const v1::RankCommand& command, const std::string& what) {
  return fleet_.Call(command, what, kPrepareS);
}

Bench::Bench(Fleet& fleet, Workload workload)
    : fleet_(fleet),
      workload_(std::move(workload)),
      room_bytes_(fleet.cluster().device_memory_bytes > 0 ? kShareForGraphs * fleet.cluster().device_memory_bytes
                                                          : std::numeric_limits<double>::infinity()) {}

StatusOr<int> Bench::Add(const Plan& plan) {
  const int graph = static_cast<int>(graphs_.size());
  graphs_.push_back({.plan = plan, .name = StrCat(Name(plan.knobs.family), " of ", workload_.name)});
  RETURN_IF_ERROR(MakeReady(graph));
  return graph;
}

Status Bench::MakeReady(int graph) {
  Graph& wanted = graphs_[graph];
  wanted.last_use = ++uses_;
  if (wanted.ready) return OkStatus();
  const auto is_ready = [](const Graph& one) { return one.ready; };
  while (wanted.plan.memory_bytes > room_bytes_ && std::ranges::any_of(graphs_, is_ready)) {
    int oldest = -1;
    for (int i = 0; i < static_cast<int>(graphs_.size()); ++i) {
      if (graphs_[i].ready && (oldest < 0 || graphs_[i].last_use < graphs_[oldest].last_use)) oldest = i;
    }
    RETURN_IF_ERROR(Free(oldest));
  }
  return Prepare(graph);
}

Status Bench::Prepare(int graph) {
  Graph& wanted = graphs_[graph];
  v1::RankCommand command;
  command.mutable_prepare()->set_graph(graph);
  *command.mutable_prepare()->mutable_workload() = ToProto(workload_);
  *command.mutable_prepare()->mutable_plan() =
      ToProto(Plan{.knobs = wanted.plan.knobs, .order = wanted.plan.order, .gradients = wanted.plan.gradients});
  RETURN_IF_ERROR(Call(command, "prepare " + wanted.name).status());
  wanted.ready = true;
  room_bytes_ -= wanted.plan.memory_bytes;
  return OkStatus();
}

Status Bench::Free(int graph) {
  v1::RankCommand command;
  command.mutable_release()->set_graph(graph);
  RETURN_IF_ERROR(Call(command, "release " + graphs_[graph].name).status());
  graphs_[graph].ready = false;
  room_bytes_ += graphs_[graph].plan.memory_bytes;
  return OkStatus();
}

StatusOr<std::vector<v1::RankReply>> Bench::CallRun(int graph, bool timeline) {
  const bool again = !graphs_[graph].ready;
  RETURN_IF_ERROR(MakeReady(graph));
  v1::RankCommand command;
  command.mutable_run()->set_graph(graph);
  command.mutable_run()->set_timeline(timeline);
  const auto run = [&] {
    return fleet_.CallInStep(command, "run " + graphs_[graph].name,
                             kPrepareS + kRunDeadlines * fleet_.collective_deadline_s());
  };
  if (again && !fleet_.repeats_times()) RETURN_IF_ERROR(run().status());
  return run();
}

StatusOr<double> Bench::TimeOnceS(int graph) {
  ASSIGN_OR_RETURN(const std::vector<v1::RankReply> replies, CallRun(graph, /*timeline=*/false));
  double slowest_s = 0;
  for (const v1::RankReply& reply : replies) slowest_s = std::max(slowest_s, reply.ran().time_s());
  return slowest_s;
}

StatusOr<Bench::TimedRun> Bench::RunWithTimelines(int graph) {
  ASSIGN_OR_RETURN(const std::vector<v1::RankReply> replies, CallRun(graph, /*timeline=*/true));
  TimedRun run;
  for (const v1::RankReply& reply : replies) {
    run.time_s = std::max(run.time_s, reply.ran().time_s());
    v1::RankTimeline& rank = run.ranks.emplace_back();
    rank.set_rank(static_cast<int>(run.ranks.size()) - 1);
    *rank.mutable_timeline() = reply.ran().timeline();
  }
  return run;
}

StatusOr<Bench::Accuracy> Bench::Check(int graph) {
  v1::RankCommand command;
  command.mutable_check()->set_graph(graph);
  ASSIGN_OR_RETURN(const std::vector<v1::RankReply> replies, Call(command, "check " + graphs_[graph].name));
  Accuracy accuracy;
  for (const v1::RankReply& reply : replies) accuracy.dropped += reply.checked().dropped();
  accuracy.values_computed = replies.front().checked().deviations_size() > 0;
  for (int tensor = 0; tensor < replies.front().checked().deviations_size(); ++tensor) {
    double error = 0, largest = 0;
    for (const v1::RankReply& reply : replies) {
      const auto& deviation = reply.checked().deviations(tensor);
      if (!(deviation.largest_error() <= error)) error = deviation.largest_error();  // A NaN stays.
      largest = std::max(largest, deviation.largest_reference());
    }
    const double relative = error == 0 ? 0 : error / largest;  // A gate that draws has no gradient at all.
    if (!(relative <= accuracy.max_relative_error)) accuracy.max_relative_error = relative;
  }
  return accuracy;
}

Status Bench::Release() {
  v1::RankCommand command;
  command.mutable_release();
  for (const Graph& one : graphs_) room_bytes_ += one.ready ? one.plan.memory_bytes : 0;
  graphs_.clear();
  return Call(command, "release").status();
}

StatusOr<v1::RunReport> RunPlan(Fleet& fleet, const Workload& workload, const Plan& plan) {
  Bench bench(fleet, workload);
  ASSIGN_OR_RETURN(const int graph, bench.Add(plan));
  const int warm_ups = fleet.repeats_times() ? 0 : kWarmUpRuns, runs = fleet.repeats_times() ? 1 : kMeasuredRuns;
  for (int i = 0; i < warm_ups; ++i) RETURN_IF_ERROR(bench.TimeOnceS(graph).status());
  std::vector<double> times_s;
  Bench::TimedRun last;
  for (int i = 0; i < runs; ++i) {
    ASSIGN_OR_RETURN(last, bench.RunWithTimelines(graph));
    times_s.push_back(last.time_s);
  }
  ASSIGN_OR_RETURN(const Bench::Accuracy accuracy, bench.Check(graph));
  RETURN_IF_ERROR(bench.Release());
  v1::RunReport report;
  report.set_schedule(ToProto(plan).schedule());
  report.set_predicted_time_s(plan.predicted_time_s);
  report.set_measured_time_s(Median(times_s));
  report.set_spread_s(InterquartileRange(times_s));
  report.set_max_relative_error(accuracy.max_relative_error);
  report.set_dropped_tokens(accuracy.dropped);
  report.set_values_computed(accuracy.values_computed);
  report.mutable_ranks()->Assign(last.ranks.begin(), last.ranks.end());
  return report;
}

}  // namespace moeplan::agent
