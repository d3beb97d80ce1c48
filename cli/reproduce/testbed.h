// A testbed of deploy/testbeds, simulated, several times at once: what is measured and run on it is spread over the
// processors. Without noise in its file the figures do not depend on how many those are.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/calibrate.h"
#include "agent/fleet.h"
#include "models/cluster/simulated_cluster.h"
#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "models/workload/workload.h"
#include "moeplan/v1/report.pb.h"

namespace moeplan::cli {

// The cluster that the file `name`.json, built into the program, describes. kNotFound for another name.
StatusOr<SimulatedCluster> FindTestbed(std::string_view name);
// The workloads of its file grids/`name`.json.
StatusOr<std::vector<Workload>> FindTestbedGrid(std::string_view name);

// What is being done, and how much of it is done: 0 to 1.
using ShowProgress = std::function<void(double done, const std::string& what)>;

// A run to be made: the schedule of `plan`'s knobs and order. The workload is resolved.
struct Job {
  Workload workload;
  Plan plan;
};

// Driven by one thread.
class Testbed {
 public:
  static StatusOr<Testbed> Start(const SimulatedCluster& cluster, ShowProgress progress = nullptr);

  const std::string& name() const { return name_; }
  // As its ranks know it: without the peak of its GPUs.
  Cluster cluster() const { return fleets_.front().cluster(); }

  // All of them that fit a device, however long it takes.
  StatusOr<SampleSet> Measure(const std::vector<agent::Measurement>& measurements);
  // Those, fitted.
  StatusOr<Profile> Calibrate(const std::vector<agent::Measurement>& measurements);

  // How long each job takes on its slowest rank.
  StatusOr<std::vector<double>> TimesS(const std::vector<Job>& jobs);
  // How long each training step takes on its slowest rank, in the order of its plan.
  StatusOr<std::vector<double>> StepTimesS(const std::vector<GraphPlanAnswer>& steps);
  // What rank 0 recorded of each. On a cluster without stragglers all ranks are alike.
  StatusOr<std::vector<v1::RankTimeline>> Timelines(const std::vector<Job>& jobs);

 private:
  Testbed(std::string name, std::vector<agent::Fleet> fleets, ShowProgress progress)
      : name_(std::move(name)), fleets_(std::move(fleets)), progress_(std::move(progress)) {}

  // do_one(fleet, i) for every i below `count`, on as many threads as there are fleets; the error of the lowest i.
  Status ForEach(size_t count, const std::string& what, const std::function<Status(agent::Fleet&, size_t)>& do_one);

  std::string name_;
  std::vector<agent::Fleet> fleets_;  // All of the same cluster.
  ShowProgress progress_;
};

// The median of what was measured of it; nothing where it did not fit.
std::optional<double> MeasuredS(const SampleSet& samples, const CostKey& key, double bytes);

}  // namespace moeplan::cli
