#include "cli/reproduce/testbed.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "agent/compare/run_plan.h"
#include "agent/compare/run_step.h"
#include "agent/simulated_fleet.h"
#include "cli/options.h"
#include "models/fit/fit.h"
#include "models/fit/statistics.h"
#include "models/text.h"

namespace moeplan::cli {
namespace {

constexpr int kMostRanks = 4096;     // Of all simulations together: each is a thread.
constexpr double kUnlimitedS = 1e6;  // Of wall time: what is measured must not depend on how fast this machine is.

}  // namespace

StatusOr<Testbed> Testbed::Start(const SimulatedCluster& cluster, ShowProgress progress) {
  std::vector<agent::Fleet> fleets;
  // All are forked before any thread runs.
  const int count = std::clamp(kMostRanks / Gpus(cluster), 1, DefaultThreads());
  for (int i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(agent::Fleet fleet, agent::StartSimulated(cluster));
    fleets.push_back(std::move(fleet));
  }
  return Testbed(cluster.name, std::move(fleets), std::move(progress));
}

Status Testbed::ForEach(size_t count, const std::string& what,
                        const std::function<Status(agent::Fleet&, size_t)>& do_one) {
  std::mutex mutex;  // Of what follows.
  size_t next = 0, failed = count;
  Status first;
  const auto drive = [&](agent::Fleet& fleet) {
    for (;;) {
      std::unique_lock lock(mutex);
      if (next >= count || failed < count) return;
      const size_t mine = next++;
      if (progress_) progress_(static_cast<double>(mine) / count, StrCat(name_, ": ", what));
      lock.unlock();
      const Status status = do_one(fleet, mine);
      lock.lock();
      if (status.ok() || mine >= failed) continue;
      failed = mine;
      first = status;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (agent::Fleet& fleet : fleets_) threads.emplace_back([&] { drive(fleet); });
  }
  return first.Within(name_);
}

StatusOr<SampleSet> Testbed::Measure(const std::vector<agent::Measurement>& measurements) {
  // A contended measurement needs to know how long the plain one takes, so that both are one share of the work.
  std::map<std::pair<CostKey, double>, std::vector<agent::Measurement>> shares;
  for (const agent::Measurement& one : measurements) {
    shares[{WithContention(one.need.key, Contention::kNone), one.need.size}].push_back(one);
  }
  std::vector<std::vector<agent::Measurement>> work;
  for (auto& [key, share] : shares) work.push_back(std::move(share));
  std::vector<SampleSet> parts(work.size());
  RETURN_IF_ERROR(ForEach(work.size(), "calibrating", [&](agent::Fleet& fleet, size_t i) -> Status {
    StatusOr<SampleSet> part = agent::Calibrate(fleet, work[i], {.budget_s = kUnlimitedS, .name = name_});
    if (part.status().code() == StatusCode::kInfeasible) return OkStatus();  // No device holds any of it.
    ASSIGN_OR_RETURN(parts[i], std::move(part));
    return OkStatus();
  }));
  SampleSet all{.name = name_, .cluster = cluster(), .samples = {}};
  for (SampleSet& part : parts) {
    all.cluster.peak_flops_per_s = std::max(all.cluster.peak_flops_per_s, part.cluster.peak_flops_per_s);
    std::ranges::move(part.samples, std::back_inserter(all.samples));
  }
  return all;
}

std::optional<double> MeasuredS(const SampleSet& samples, const CostKey& key, double bytes) {
  const auto is_it = [&](const Sample& sample) { return sample.key == key && sample.size == bytes; };
  const auto found = std::ranges::find_if(samples.samples, is_it);
  if (found == samples.samples.end()) return std::nullopt;
  return Median(found->times_s);
}

StatusOr<Profile> Testbed::Calibrate(const std::vector<agent::Measurement>& measurements) {
  ASSIGN_OR_RETURN(const SampleSet samples, Measure(measurements));
  return FitProfile(samples);
}

StatusOr<std::vector<double>> Testbed::TimesS(const std::vector<Job>& jobs) {
  std::vector<double> times_s(jobs.size());
  RETURN_IF_ERROR(ForEach(jobs.size(), "running", [&](agent::Fleet& fleet, size_t i) -> Status {
    agent::Bench bench(fleet, jobs[i].workload);
    ASSIGN_OR_RETURN(const int graph, bench.Add(jobs[i].plan));
    ASSIGN_OR_RETURN(times_s[i], bench.TimeOnceS(graph));
    return bench.Release();
  }));
  return times_s;
}

StatusOr<std::vector<double>> Testbed::StepTimesS(const std::vector<GraphPlanAnswer>& steps) {
  std::vector<double> times_s(steps.size());
  RETURN_IF_ERROR(ForEach(steps.size(), "running", [&](agent::Fleet& fleet, size_t i) -> Status {
    ASSIGN_OR_RETURN(const v1::RunReport report, agent::RunStep(fleet, steps[i], agent::StepOrder::kLancet));
    times_s[i] = report.measured_time_s();
    return OkStatus();
  }));
  return times_s;
}

StatusOr<std::vector<v1::RankTimeline>> Testbed::Timelines(const std::vector<Job>& jobs) {
  std::vector<v1::RankTimeline> timelines(jobs.size());
  RETURN_IF_ERROR(ForEach(jobs.size(), "running", [&](agent::Fleet& fleet, size_t i) -> Status {
    agent::Bench bench(fleet, jobs[i].workload);
    ASSIGN_OR_RETURN(const int graph, bench.Add(jobs[i].plan));
    ASSIGN_OR_RETURN(agent::Bench::TimedRun run, bench.RunWithTimelines(graph));
    timelines[i] = std::move(run.ranks.front());
    return bench.Release();
  }));
  return timelines;
}

}  // namespace moeplan::cli
