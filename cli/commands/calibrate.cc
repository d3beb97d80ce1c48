#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "agent/calibrate.h"
#include "agent/what_to_measure.h"
#include "cli/cluster_option.h"
#include "cli/command.h"
#include "cli/commands/calibrate_agents.h"
#include "cli/options.h"
#include "cli/planner_option.h"
#include "db/store.h"
#include "models/cost/plausible.h"
#include "models/fit/fit.h"
#include "models/text.h"
#include "proto/convert/profile.h"

namespace moeplan::cli {
namespace {

struct CalibrateOptions {
  ClusterOption cluster;
  std::string db, profile_name, layouts, budget = "60s";
  PlannerOption planner;
  std::string agents_cluster = "default", wait = "1h";
  std::vector<int> ctas;
  bool json = false;
};

std::string CurveRow(const CostModel& model) {
  return model.fit ? StrCat(FormName(model.curve), ", ", model.fit->points, " sizes")
                   : std::string(FormName(model.curve));
}

void PrintSummary(const Profile& profile, const std::string& where) {
  std::vector<std::vector<std::string>> rows = {{"measured", "model", "error", "at largest size"}};
  const auto add = [&](const std::string& name, const CostModel& model, double bus_factor) {
    const std::string error = model.fit ? Percent(model.fit->relative_error_p50) : "";
    const bool ends = std::isfinite(model.size_high);  // A line that was stored has no end.
    const std::string largest = ends ? Duration(TimeS(model.curve, model.size_high, bus_factor)) : "";
    rows.push_back({name, CurveRow(model), error, largest});
  };
  for (const CollectiveModel& entry : profile.collectives) {
    add(Describe(entry.key), entry.model, BusFactor(entry.key.collective, entry.key.group.size));
  }
  for (const KernelModel& entry : profile.kernels) add(Describe(entry.key), entry.model, 1);
  std::fputs(Table(rows).c_str(), stdout);
  std::printf("profile %s, version %d, in %s\n", profile.name.c_str(), profile.version, where.c_str());
}

// With those beside them that cannot be right.
SampleBatch BatchOf(const std::string& request_id, const SampleSet& samples, const std::vector<Sample>& implausible) {
  SampleBatch batch = {.request_id = request_id, .calibration = "", .samples = samples};
  for (const Sample& sample : implausible) {
    batch.rejected.push_back({.sample = static_cast<int>(batch.samples.samples.size()),
                              .reason = WhyImplausible(sample, samples.cluster).value_or("")});
    batch.samples.samples.push_back(sample);
  }
  return batch;
}

Status RunWithAgents(const CalibrateOptions& options) {
  if (options.cluster.given() || !options.db.empty() || !options.ctas.empty()) {
    return InvalidInput(
        "--planner: found beside --db, --ctas or a CLUSTER, expected the planner's own agents and database");
  }
  ASSIGN_OR_RETURN(const double budget_s, ParseSeconds("--budget", options.budget));
  ASSIGN_OR_RETURN(const double wait_limit_s, ParseSeconds("--wait", options.wait));
  constexpr double kPlannerDeadlineS = 30;
  ASSIGN_OR_RETURN(const ConnectOptions planner, options.planner.Connect(kPlannerDeadlineS));
  ASSIGN_OR_RETURN(const Profile profile, CalibrateWithAgents({.planner = planner,
                                                               .cluster = options.agents_cluster,
                                                               .profile_name = options.profile_name,
                                                               .layouts = options.layouts,
                                                               .budget_s = budget_s,
                                                               .wait_limit_s = wait_limit_s}));
  if (options.json) {
    PrintJson(ToProto(profile));
  } else {
    PrintSummary(profile, StrCat("the planner at ", planner.address));
  }
  return OkStatus();
}

// A profile is of one cluster: a version of another would be planned with by jobs that name it.
Status CheckCluster(const Store& store, const std::string& name, const Cluster& cluster) {
  const StatusOr<Profile> newest = store.LoadProfile({.name = name});
  if (!newest.ok()) return newest.status().code() == StatusCode::kNotFound ? OkStatus() : newest.status();
  const Cluster& known = newest->cluster;
  if (known.nodes == cluster.nodes && known.gpus_per_node == cluster.gpus_per_node) return OkStatus();
  return InvalidInput(StrCat("--profile-name: found ", name, ", which is of ", known.nodes, " nodes of ",
                             known.gpus_per_node, " GPUs, for ", cluster.nodes, " of ", cluster.gpus_per_node,
                             "; give another cluster another name"));
}

Status Run(const CalibrateOptions& options) {
  if (options.planner.given()) return RunWithAgents(options);
  if (options.db.empty()) return InvalidInput("--db is required; see moeplan calibrate --help, or give --planner");
  ASSIGN_OR_RETURN(const double budget_s, ParseSeconds("--budget", options.budget));
  CalibrationRequest request = {.grid_origin = options.layouts};
  if (!options.layouts.empty()) {
    ASSIGN_OR_RETURN(request.grid, ReadGrid(options.layouts));
  }
  for (const int limit : options.ctas) {
    if (limit < 1 || !ValidateCtas(limit, "--ctas").ok()) {
      return InvalidInput(StrCat("--ctas: found ", limit, ", expected limits from 1 to ", kMostCtas));
    }
  }
  ASSIGN_OR_RETURN(std::optional<Fleet> fleet, options.cluster.Start());
  if (!fleet) return OkStatus();
  if (options.cluster.backend() == "host" && !options.cluster.simulated() && std::filesystem::exists("/dev/nvidia0")) {
    std::fputs("moeplan: there are GPUs here, and processors are measured; --backend cuda measures the GPUs\n", stderr);
  }
  if (!options.ctas.empty() && !fleet->limits_ctas()) return CannotLimitCtas(options.ctas.front());
  // Now that there are ranks to measure, and before time is spent on it.
  ASSIGN_OR_RETURN(Store store, Store::Open(options.db));
  ASSIGN_OR_RETURN(std::vector<Measurement> measurements, WhatToMeasure(request, fleet->cluster()));
  measurements = WithCtaLimits(measurements, options.ctas);
  const std::string taken_at = NowText();
  const std::string name = options.profile_name.empty() ? options.cluster.DefaultName(*fleet) : options.profile_name;
  const Cluster cluster = fleet->cluster();
  RETURN_IF_ERROR(CheckCluster(store, name, cluster));
  std::vector<Sample> implausible;
  ProgressBar bar("calibrating");
  ASSIGN_OR_RETURN(
      const SampleSet samples,
      Calibrate(*fleet, measurements,
                {.budget_s = budget_s,
                 .name = name,
                 .taken_at = taken_at,
                 .keep =
                     [&](const Sample& sample) {
                       if (WhyImplausible(sample, cluster)) implausible.push_back(sample);
                       return OkStatus();
                     },
                 .progress = [&bar](const CalibrationProgress& progress) { bar.Show(progress.done, progress.what); },
                 .left_out = [](const std::string& what) { std::fprintf(stderr, "moeplan: %s\n", what.c_str()); }}));
  fleet.reset();
  const SampleBatch batch =
      BatchOf(StrCat("calibrate ", name, " ", taken_at, " ", static_cast<int>(getpid())), samples, implausible);
  RETURN_IF_ERROR(store.AppendSamples({&batch, 1}).status());
  if (!implausible.empty()) {
    std::fprintf(stderr,
                 "moeplan: %zu samples cannot be right and were set aside; see moeplan profile rejected --db %s\n",
                 implausible.size(), options.db.c_str());
  }
  ASSIGN_OR_RETURN(Profile profile, FitProfile(samples));
  ASSIGN_OR_RETURN(const ProfileVersion saved, store.SaveProfile(profile));
  profile.version = saved.version;
  profile.created_at = saved.created_at;
  if (options.json) {
    PrintJson(ToProto(profile));
  } else {
    PrintSummary(profile, options.db);
  }
  return OkStatus();
}

}  // namespace

void AddCalibrate(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command =
      AddCommand(app, invocation, "calibrate", "Measure collectives and kernels, fit them, and keep the profile",
                 "moeplan calibrate --local 4 --db moeplan.db --budget 60s", [options] { return Run(*options); });
  options->cluster.Add(*command);
  command->add_option("--db", options->db, "Database to keep samples and profile in (made when absent)");
  options->planner.Add(*command, *command);
  command->add_option("--cluster", options->agents_cluster, "With --planner: the cluster, as its agents name it")
      ->capture_default_str();
  command->add_option("--wait", options->wait, "With --planner: how long to wait for missing agents")
      ->capture_default_str();
  command->add_option("--profile-name", options->profile_name, "Name of the profile (default: after the cluster)");
  command->add_option("--layouts", options->layouts, "GRID.json: measure what these workloads need");
  command
      ->add_option("--ctas", options->ctas,
                   "Limits on the CTAs of collectives to measure, too, such as 4,16 (backend cuda, ranks with a GPU "
                   "each)")
      ->delimiter(',');
  command->add_option("--budget", options->budget, "Time to measure for, such as 60s or 5m")->capture_default_str();
  command->add_flag("--json", options->json, "Print the profile as JSON");
}

}  // namespace moeplan::cli
