#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <stop_token>
#include <string_view>
#include <thread>

#include "agent/calibrate.h"
#include "agent/libraries/library_kernels.h"
#include "agent/what_to_measure.h"
#include "cli/calibrated_models.h"
#include "cli/cluster_option.h"
#include "cli/command.h"
#include "cli/commands/calibrate_agents.h"
#include "cli/commands/calibrate_session.h"
#include "cli/named_model.h"
#include "cli/options.h"
#include "cli/planner_option.h"
#include "cli/stop_signals.h"
#include "db/store.h"
#include "models/text.h"
#include "planner/service/samples/fit_together.h"
#include "planner/service/samples/sample_session.h"
#include "planner/shipped/names.h"
#include "proto/convert/profile.h"

namespace moeplan::cli {
namespace {

struct CalibrateOptions {
  ClusterOption cluster;
  std::string db, profile_name, layouts, graph, kernels_of, budget = "60s", python;
  std::vector<std::string> models;
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

Status RunWithAgents(const CalibrateOptions& options) {
  if (options.cluster.given() || !options.db.empty() || !options.ctas.empty() || !options.python.empty() ||
      !options.kernels_of.empty()) {
    return InvalidInput(
        "--planner: found beside --db, --ctas, --python, --kernels-of or a CLUSTER, expected the planner's own agents "
        "and database");
  }
  ASSIGN_OR_RETURN(const double budget_s, ParseSeconds("--budget", options.budget));
  ASSIGN_OR_RETURN(const double wait_limit_s, ParseSeconds("--wait", options.wait));
  constexpr double kPlannerDeadlineS = 30;
  ASSIGN_OR_RETURN(const client::ConnectOptions planner, options.planner.Connect(kPlannerDeadlineS));
  ASSIGN_OR_RETURN(const Profile profile, CalibrateWithAgents({.planner = planner,
                                                               .cluster = options.agents_cluster,
                                                               .profile_name = options.profile_name,
                                                               .layouts = options.layouts,
                                                               .models = options.models,
                                                               .budget_s = budget_s,
                                                               .wait_limit_s = wait_limit_s}));
  if (options.json) {
    PrintJson(ToProto(profile));
  } else {
    PrintSummary(profile, StrCat("the planner at ", planner.address));
  }
  return OkStatus();
}

// A profile is of one cluster: a version, or samples, of another would be planned with by jobs that name it.
Status CheckSameCluster(const std::string& name, const Cluster& known, const Cluster& cluster) {
  if (known.nodes == cluster.nodes && known.gpus_per_node == cluster.gpus_per_node) return OkStatus();
  return InvalidInput(StrCat("--profile-name: found ", name, ", which is of ", known.nodes, " nodes of ",
                             known.gpus_per_node, " GPUs, for ", cluster.nodes, " of ", cluster.gpus_per_node,
                             "; give another cluster another name"));
}

Status CheckCluster(const Store& store, const std::string& name, const Cluster& cluster) {
  const StatusOr<Profile> newest = store.LoadProfile({.name = name});
  if (newest.ok()) return CheckSameCluster(name, newest->cluster, cluster);
  if (newest.status().code() != StatusCode::kNotFound) return newest.status();
  // A calibration that was interrupted before its first profile has left samples.
  const StatusOr<std::vector<Calibration>> found = store.SamplesOf({.profile_name = name});
  if (found.ok()) return CheckSameCluster(name, found->front().samples.cluster, cluster);
  return found.status().code() == StatusCode::kNotFound ? OkStatus() : found.status();
}

// A word as a shell reads it back.
std::string ShellWord(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char letter : word) quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return quoted + "'";
}

// This command as it was typed.
std::string ThisCommand() {
  std::ifstream words("/proc/self/cmdline", std::ios::binary);
  std::string command;
  for (std::string word; std::getline(words, word, '\0');) {
    command += StrCat(command.empty() ? "" : " ", ShellWord(word));
  }
  return command;
}

StatusOr<service::SampleSession> SessionFor(Store& store, const std::string& name, const Cluster& cluster,
                                            const std::string& taken_at) {
  ASSIGN_OR_RETURN(const std::optional<std::string> interrupted, InterruptedSession(store, name, cluster));
  return service::SampleSession(store, interrupted.value_or(NewSession(name, taken_at)), name);
}

Status StoppedBySignal() { return Cancelled(StrCat("stopped by SIG", sigabbrev_np(StopOnSignal::signal()))); }

// Keeps every sample as it is taken; what cuts it short is told with what is kept and how to go on.
Status Measure(const CalibrateOptions& options, agent::Fleet& fleet,
               const std::vector<agent::Measurement>& measurements, agent::CalibrationOptions calibration,
               service::SampleSession& session) {
  ASSIGN_OR_RETURN(calibration.taken, session.Resume());
  if (session.kept() > 0) {
    std::fprintf(stderr, "moeplan: goes on with the calibration that was interrupted: %d samples are kept\n",
                 session.kept());
  }
  StopOnSignal::SetCount(session.kept());
  calibration.keep = [&](const Sample& sample) -> Status {
    RETURN_IF_ERROR(session.Keep(fleet.cluster(), sample));
    StopOnSignal::SetCount(session.kept());
    return StopOnSignal::signal() == 0 ? OkStatus() : StoppedBySignal();
  };
  std::optional<ProgressBar> bar("calibrating");
  calibration.progress = [&bar](const agent::CalibrationProgress& progress) {
    bar->Show(progress.done, progress.what);
  };
  calibration.left_out = [](const std::string& what) { std::fprintf(stderr, "moeplan: %s\n", what.c_str()); };
  const Status measured = agent::Calibrate(fleet, measurements, calibration).status();
  bar.reset();
  if (session.set_aside() > 0) {
    std::fprintf(stderr,
                 "moeplan: %d samples cannot be right and were set aside; see moeplan profile rejected --db %s\n",
                 session.set_aside(), options.db.c_str());
  }
  if (!measured.ok()) StopOnSignal::SayLastWords();
  return measured;
}

// The fit of all samples of the name; a signal stops it between two curves.
StatusOr<Profile> FitKept(Store& store, const service::SampleSession& session, const std::string& name) {
  constexpr std::chrono::milliseconds kLookEvery{20};
  std::stop_source stop;
  const std::jthread watch([&](const std::stop_token& fitted) {
    while (!fitted.stop_requested() && StopOnSignal::signal() == 0) std::this_thread::sleep_for(kLookEvery);
    if (StopOnSignal::signal() != 0) stop.request_stop();
  });
  StatusOr<Profile> profile = service::FitStored(store, RequestOfSession(session.session()), name,
                                                 service::UnknownPeak::kFastestProduct, {.stop = stop.get_token()});
  if (profile.ok() || profile.status().code() != StatusCode::kCancelled) return profile;
  StopOnSignal::SayLastWords();
  return StoppedBySignal();
}

// The profile of all samples of the name, once `fleet` has measured those of this calibration.
StatusOr<Profile> CalibrateInto(Store& store, const CalibrateOptions& options, const agent::CalibrationRequest& request,
                                double budget_s, agent::Fleet& fleet) {
  const Cluster cluster = fleet.cluster();
  ASSIGN_OR_RETURN(const std::vector<agent::Measurement> measurements, agent::WhatToMeasure(request, cluster));
  const std::string name = options.profile_name.empty() ? options.cluster.DefaultName(fleet) : options.profile_name;
  RETURN_IF_ERROR(CheckCluster(store, name, cluster));
  const std::string taken_at = NowText();
  ASSIGN_OR_RETURN(service::SampleSession session, SessionFor(store, name, cluster, taken_at));
  // While samples are taken and while they are fitted.
  const StopOnSignal stop("moeplan: samples kept: ",
                          StrCat(", of profile ", name, " in ", options.db, "; go on with: ", ThisCommand(), "\n"));
  RETURN_IF_ERROR(Measure(options, fleet, agent::WithCtaLimits(measurements, options.ctas),
                          {.budget_s = budget_s, .name = name, .taken_at = taken_at}, session));
  if (session.kept() == 0) {
    return InvalidInput(
        StrCat("--budget: found ", options.budget, ", in which no sample was taken that counts; give more"));
  }
  return FitKept(store, session, name);
}

// Names a program by its path, or one that a shell would find: kernels of steps are not to be left out for a typing
// error.
Status CheckProgram(const std::string& name) {
  if (name.empty()) return OkStatus();
  const char* path = std::getenv("PATH");
  std::istringstream folders(name.find('/') != std::string::npos || path == nullptr ? "" : path);
  std::vector<std::string> places = {name};
  for (std::string folder; std::getline(folders, folder, ':');) places.push_back(StrCat(folder, "/", name));
  const bool found = std::ranges::any_of(places, [](const std::string& place) {
    return !std::filesystem::is_directory(place) && access(place.c_str(), X_OK) == 0;
  });
  if (found) return OkStatus();
  return InvalidInput(StrCat("--python: found '", name, "', expected a program that can be run, without arguments"));
}

StatusOr<std::vector<ModelConfig>> ModelsOf(const CalibrateOptions& options) {
  std::vector<ModelConfig> models;
  for (const std::string& name : options.models) {
    ASSIGN_OR_RETURN(ModelConfig model, ModelOf(name, "--for"));
    models.push_back(std::move(model));
  }
  return models;
}

// Returns what steps need on this cluster; with --kernels-of, the kernels that they need on the cluster it names.
StatusOr<std::vector<Need>> StepNeeds(const CalibrateOptions& options, const std::vector<ModelConfig>& models,
                                      Cluster cluster) {
  if (const std::optional<planner::Domains> of = planner::ReadDomains(options.kernels_of)) {
    cluster.nodes = of->domains;
    cluster.gpus_per_node = of->gpus;
    RETURN_IF_ERROR(ValidateCluster(cluster, "--kernels-of"));
  }
  ASSIGN_OR_RETURN(std::vector<Need> needs, models.empty() ? NeedsOfUsualModels(options.cluster.backend(), cluster)
                                                           : NeedsOfModels(models, cluster));
  return options.kernels_of.empty() ? std::move(needs) : KernelsAlone(std::move(needs));
}

Status CheckKernelsOf(const CalibrateOptions& options) {
  if (options.kernels_of.empty()) return OkStatus();
  if (!options.layouts.empty()) return InvalidInput("--kernels-of: found beside --layouts, expected one of them");
  if (options.models.empty() && options.cluster.backend() != "cuda" && !options.planner.given()) {
    return InvalidInput("--kernels-of: found without --for, expected the models whose kernels are to be measured");
  }
  if (planner::ReadDomains(options.kernels_of)) return OkStatus();
  return InvalidInput(StrCat("--kernels-of: found '", options.kernels_of, "', expected NODESxGPUS such as 8x8"));
}

Status CheckGraph(const CalibrateOptions& options) {
  if (options.graph.empty()) return OkStatus();
  const char* const beside = !options.layouts.empty()      ? "--layouts"
                             : !options.models.empty()     ? "--for"
                             : !options.kernels_of.empty() ? "--kernels-of"
                             : options.planner.given()     ? "--planner"
                                                           : "";
  if (*beside == '\0') return OkStatus();
  return InvalidInput(StrCat("--graph: found beside ", beside, ", expected it alone"));
}

Status Run(const CalibrateOptions& options) {
  if (!options.models.empty() && !options.layouts.empty()) {
    return InvalidInput("--for: found beside --layouts, expected one of them");
  }
  RETURN_IF_ERROR(CheckKernelsOf(options));
  RETURN_IF_ERROR(CheckGraph(options));
  if (options.planner.given()) return RunWithAgents(options);
  if (options.db.empty()) return InvalidInput("--db is required; see moeplan calibrate --help, or give --planner");
  ASSIGN_OR_RETURN(const double budget_s, ParseSeconds("--budget", options.budget));
  agent::CalibrationRequest request = {.grid_origin = options.layouts};
  if (!options.layouts.empty()) {
    ASSIGN_OR_RETURN(request.grid, ReadGrid(options.layouts));
  }
  if (!options.graph.empty()) {
    ASSIGN_OR_RETURN(request.graph, ReadTrainingGraph(options.graph));
  }
  for (const int limit : options.ctas) {
    if (limit < 1 || !ValidateCtas(limit, "--ctas").ok()) {
      return InvalidInput(StrCat("--ctas: found ", limit, ", expected limits from 1 to ", kMostCtas));
    }
  }
  ASSIGN_OR_RETURN(const std::vector<ModelConfig> models, ModelsOf(options));
  RETURN_IF_ERROR(CheckProgram(options.python));
  if (!options.python.empty()) setenv(agent::kPythonVariable, options.python.c_str(), /*overwrite=*/1);
  ASSIGN_OR_RETURN(std::optional<agent::Fleet> fleet, options.cluster.Start());
  if (!fleet) return OkStatus();
  if (options.layouts.empty() && options.graph.empty()) {
    ASSIGN_OR_RETURN(request.step_needs, StepNeeds(options, models, fleet->cluster()));
  }
  if (options.cluster.backend() == "host" && !options.cluster.simulated() && std::filesystem::exists("/dev/nvidia0")) {
    std::fputs("moeplan: there are GPUs here, and processors are measured; --backend cuda measures the GPUs\n", stderr);
  }
  if (!options.ctas.empty() && !fleet->limits_ctas()) return agent::CannotLimitCtas(options.ctas.front());
  // Now that there are ranks to measure, and before time is spent on it.
  ASSIGN_OR_RETURN(Store store, Store::Open(options.db));
  ASSIGN_OR_RETURN(const Profile profile, CalibrateInto(store, options, request, budget_s, *fleet));
  fleet.reset();
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
  command->add_option("--graph", options->graph,
                      "GRAPH.json, as `moeplan graph` prints it: measure what its instructions need, at their sizes");
  command
      ->add_option("--for", options->models,
                   "Models, by file or name: measure what their steps need, through the job's own libraries (default: "
                   "with --backend cuda some well-known ones)")
      ->delimiter(',');
  command->add_option("--kernels-of", options->kernels_of,
                      "NODESxGPUS: measure the kernels of steps on so large a cluster, on the ranks that are here");
  command->add_option("--python", options->python,
                      "The job's Python, whose PyTorch is measured (default: $MOEPLAN_PYTHON, else python3)");
  command
      ->add_option("--ctas", options->ctas,
                   "Limits on the CTAs of collectives to measure, too, such as 4,16 (backend cuda, ranks with a GPU "
                   "each)")
      ->delimiter(',');
  command->add_option("--budget", options->budget, "Time to measure for, such as 60s or 5m")->capture_default_str();
  command->add_flag("--json", options->json, "Print the profile as JSON");
}

}  // namespace moeplan::cli
