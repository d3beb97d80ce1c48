#include <cmath>
#include <cstdio>
#include <memory>

#include "agent/calibrate.h"
#include "agent/compare/settle.h"
#include "agent/compare/validate.h"
#include "cli/cluster_option.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/run_log.h"
#include "models/fit/fit.h"
#include "models/text.h"
#include "models/workload/resolve_grid.h"
#include "planner/search/plan_layer.h"
#include "proto/enum_names.h"

namespace moeplan::cli {
namespace {

struct ValidateOptions {
  ClusterOption cluster;
  SourceOption source;
  std::string workloads;
  int top = 0;
  bool top_given = false;
  std::optional<double> max_error, max_regret;
  bool json = false;
};

constexpr double kCalibrationS = 60;

struct Calibration {
  SampleSet samples;
  Profile profile;
};

StatusOr<Calibration> CalibrateGrid(agent::Fleet& fleet, const std::vector<Workload>& resolved) {
  ProgressBar bar("calibrating");
  ASSIGN_OR_RETURN(
      SampleSet samples,
      agent::Calibrate(
          fleet, agent::MeasurementsOf(resolved, fleet.cluster()),
          {.budget_s = kCalibrationS,
           .name = "validate",
           .taken_at = NowText(),
           .progress = [&bar](const agent::CalibrationProgress& progress) { bar.Show(progress.done, progress.what); },
           .left_out = [](const std::string& what) { std::fprintf(stderr, "moeplan: %s\n", what.c_str()); }}));
  ASSIGN_OR_RETURN(Profile profile, FitProfile(samples));
  return Calibration{std::move(samples), std::move(profile)};
}

// Without a source the grid is calibrated; `calibrated` gets what was found.
StatusOr<agent::PlanFunction> MakePlanner(const ValidateOptions& options, agent::Fleet& fleet,
                                          const std::vector<Workload>& resolved,
                                          std::optional<Calibration>& calibrated) {
  if (options.source.given()) {
    return agent::PlanFunction(
        [&options](const Workload& workload) { return options.source.Plan(workload, workload.name); });
  }
  ASSIGN_OR_RETURN(calibrated, CalibrateGrid(fleet, resolved));
  return agent::PlanFunction(
      [&profile = calibrated->profile](const Workload& workload) { return planner::PlanLayer(workload, profile); });
}

// Errors of predictions are those of models only while the machine stays the one that was measured.
void WarnOfDrift(agent::Fleet& fleet, const std::vector<Workload>& resolved, const SampleSet& before) {
  constexpr double kNotable = 0.1;
  const StatusOr<std::vector<agent::Drift>> drifts =
      agent::DriftSince(fleet, agent::MeasurementsOf(resolved, fleet.cluster()), before);
  if (!drifts.ok()) {  // The report is worth having all the same.
    std::fprintf(stderr, "moeplan: whether the machine changed is not known: %s\n", drifts.status().message().c_str());
    return;
  }
  for (const agent::Drift& drift : *drifts) {
    if (std::abs(drift.ratio - 1) < kNotable) continue;
    std::fprintf(stderr,
                 "moeplan: %s now takes %.2f times as long as when it was calibrated; the errors include that\n",
                 Describe(drift.key).c_str(), drift.ratio);
  }
}

// The database of the source, for the runs: absent where there is none, or, with a word about it, where it may only be
// read.
StatusOr<std::optional<Store>> StoreForRuns(const ValidateOptions& options) {
  const std::string& path = options.source.db();
  if (path.empty()) return std::optional<Store>();
  RETURN_IF_ERROR(Store::OpenReadOnly(path).status());  // A source is not made when absent.
  StatusOr<Store> store = Store::Open(path);
  if (store.ok()) return std::optional<Store>(*std::move(store));
  if (store.status().code() != StatusCode::kPermissionDenied) return store.status();
  std::fprintf(stderr, "moeplan: the runs will not be kept: %s\n", store.status().message().c_str());
  return std::optional<Store>();
}

// Plans, and keeps every plan; `kept` gets their numbers.
agent::PlanFunction Keeping(const agent::PlanFunction& plan, Store& store, std::vector<PlanId>& kept) {
  return [plan, &store, &kept](const Workload& workload) -> StatusOr<PlanAnswer> {
    ASSIGN_OR_RETURN(PlanAnswer answer, plan(workload));
    ASSIGN_OR_RETURN(kept.emplace_back(), SavePlan(store, answer));
    return answer;
  };
}

std::string Factor(double factor) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2fx", factor);
  return text;
}

void PrintReport(const v1::ValidationReport& report) {
  std::vector<std::vector<std::string>> rows = {
      {"workload", "chosen", "predicted", "measured", "error", "regret", "speedup"}};
  for (const v1::ValidatedWorkload& workload : report.workloads()) {
    rows.push_back({workload.name(), agent::Label(workload.chosen()), Duration(workload.chosen().predicted_time_s()),
                    Duration(workload.chosen().measured_time_s()), Percent(workload.prediction_error()),
                    Percent(workload.regret()), Factor(workload.speedup_over_baseline())});
  }
  std::fputs(Table(rows).c_str(), stdout);
  for (const v1::ValidatedWorkload& workload : report.workloads()) {
    if (const std::string text = agent::SettlementSentence(workload); !text.empty()) std::printf("%s\n", text.c_str());
  }
  std::printf(
      "prediction error: median %s, 95th percentile %s; regret: mean %s, largest %s; in the 90 %% interval: %s; "
      "speedup over the faster baseline: %s\n",
      Percent(report.prediction_error_p50()).c_str(), Percent(report.prediction_error_p95()).c_str(),
      Percent(report.regret_mean()).c_str(), Percent(report.regret_max()).c_str(), Percent(report.coverage()).c_str(),
      Factor(report.speedup_over_baseline_mean()).c_str());
}

// A limit that was missed is an answer of "no"; the report was printed all the same.
Status CheckLimits(const ValidateOptions& options, const v1::ValidationReport& report) {
  if (options.max_error && report.prediction_error_p50() > *options.max_error) {
    return Infeasible(
        StrCat("predictionErrorP50: found ", report.prediction_error_p50(), ", expected at most ", *options.max_error));
  }
  if (options.max_regret && report.regret_mean() > *options.max_regret) {
    return Infeasible(StrCat("regretMean: found ", report.regret_mean(), ", expected at most ", *options.max_regret));
  }
  return OkStatus();
}

Status CheckOptions(const ValidateOptions& options) {
  if (options.top_given && options.top < 1)
    return InvalidInput(StrCat("--top: found ", options.top, ", expected at least 1"));
  for (const auto& [name, limit] :
       {std::pair("--max-error", options.max_error), std::pair("--max-regret", options.max_regret)}) {
    if (limit && !(std::isfinite(*limit) && *limit >= 0))
      return InvalidInput(StrCat(name, ": found ", *limit, ", expected at least 0"));
  }
  return OkStatus();
}

Status Run(const ValidateOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const std::vector<Workload> grid, ReadGrid(options.workloads));
  ASSIGN_OR_RETURN(std::optional<agent::Fleet> fleet, options.cluster.Start());
  if (!fleet) return OkStatus();
  const StatusOr<std::vector<Workload>> resolved = ResolveGrid(grid, fleet->cluster());
  if (!resolved.ok()) return resolved.status().Within(options.workloads);
  ASSIGN_OR_RETURN(std::optional<Store> store, StoreForRuns(options));
  std::optional<Calibration> calibrated;
  ASSIGN_OR_RETURN(agent::PlanFunction plan, MakePlanner(options, *fleet, *resolved, calibrated));
  std::vector<PlanId> kept;
  if (store) plan = Keeping(plan, *store, kept);
  ProgressBar bar("validating");
  ASSIGN_OR_RETURN(const v1::ValidationReport report,
                   agent::Validate(*fleet, *resolved, plan,
                                   {.top = options.top, .progress = [&bar](double done, const std::string& what) {
                                      bar.Show(done, what);
                                    }}));
  if (calibrated) WarnOfDrift(*fleet, *resolved, calibrated->samples);
  fleet.reset();
  if (options.json) {
    PrintJson(report);
  } else {
    PrintReport(report);
  }
  for (size_t i = 0; i < kept.size(); ++i) {  // After what was measured is out.
    RETURN_IF_ERROR(SaveRuns(*store, kept[i], report.workloads(static_cast<int>(i))));
  }
  return CheckLimits(options, report);
}

}  // namespace

void AddValidate(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<ValidateOptions>();
  CLI::App* command = AddCommand(
      app, invocation, "validate", "Run all candidates of a grid of workloads and compare with predictions",
      "moeplan validate --workloads grid.json --local 4 --max-error 0.08", [options] { return Run(*options); });
  options->cluster.Add(*command);
  options->source.Add(*command);
  command->add_option("--workloads", options->workloads, "GRID.json")->required();
  command->add_option("--top", options->top, "Run only the K best and the baselines (default: all)")
      ->each([options](const std::string&) { options->top_given = true; });
  command->add_option("--max-error", options->max_error, "Exit 1 when the median prediction error exceeds it");
  command->add_option("--max-regret", options->max_regret, "Exit 1 when the mean regret exceeds it");
  command->add_flag("--json", options->json, "Print the report as JSON");
}

}  // namespace moeplan::cli
