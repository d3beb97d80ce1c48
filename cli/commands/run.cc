#include <unistd.h>

#include <cstdio>
#include <memory>
#include <random>

#include "agent/compare/run_plan.h"
#include "agent/compare/run_step.h"
#include "agent/compare/trace.h"
#include "cli/cluster_option.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/planner_option.h"
#include "cli/run_log.h"
#include "models/plan/build_plan.h"
#include "models/plan/step_tasks.h"
#include "models/routing/expert_load.h"
#include "models/text.h"
#include "planner/client/planner_client.h"
#include "proto/convert/plan.h"
#include "proto/enum_names.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

struct RunOptions {
  ClusterOption cluster;
  std::string plan, schedule, trace, db;
  PlannerOption planner;
  bool json = false;
};

constexpr double kReportDeadlineS = 10;
constexpr std::string_view kLancet = "LANCET", kUnscheduled = "UNSCHEDULED";

StatusOr<PlanAnswer> LayerAnswer(const v1::PlanResponse& message, const std::string& path) {
  StatusOr<PlanAnswer> answer = PlanAnswerFromProto(message);
  if (!answer.ok()) return answer.status().Within(path);
  if (answer->candidates.empty()) return InvalidInput(StrCat(path, ": candidates: found none, expected at least one"));
  return answer;
}

StatusOr<Plan> PickPlan(const PlanAnswer& answer, const RunOptions& options) {
  if (options.schedule.empty()) return answer.candidates.front();
  std::string names;
  for (const Plan& plan : answer.candidates) {
    if (Name(plan.knobs.family) == options.schedule) return plan;
    if (names.find(Name(plan.knobs.family)) == std::string::npos)
      names += StrCat(names.empty() ? "" : ", ", Name(plan.knobs.family));
  }
  return InvalidInput(
      StrCat("--schedule: found ", options.schedule, ", expected one of the plan's candidates: ", names));
}

void PrintReport(const v1::RunReport& report) {
  char output[64] = "no values computed";
  if (report.values_computed()) {
    std::snprintf(output, sizeof output, "output within %.2g of the reference", report.max_relative_error());
  }
  std::printf("%s: predicted %s, measured %s ± %s, %s, %d dropped\n", EnumNameOf(report.schedule()).c_str(),
              Duration(report.predicted_time_s()).c_str(), Duration(report.measured_time_s()).c_str(),
              Duration(report.spread_s() / 2).c_str(), output, report.dropped_tokens());
}

// Whether a machine with the simulated ranks' work to do has computed its values soon: what the experts of one source
// batch take in flops, there and in the reference.
bool IsSmall(const Workload& workload) {
  constexpr double kMostFlops = 2e8;
  const Layer& layer = workload.layer;
  const double pairs = static_cast<double>(layer.batch) * layer.sequence_length * layer.top_k;
  return 2.0 * layer.expert_matrices * pairs * layer.model_dim * layer.hidden_dim <= kMostFlops;
}

// What ran, for the planner that watches whether its profile still holds.
Status Report(const RunOptions& options, const PlanAnswer& answer, const Plan& plan, const v1::RunReport& report) {
  ASSIGN_OR_RETURN(const client::ConnectOptions connect, options.planner.Connect(kReportDeadlineS));
  ASSIGN_OR_RETURN(const auto client, client::PlannerClient::Connect(connect));
  v1::ReportRunRequest request;
  request.set_request_id(StrCat("moeplan run ", getpid(), " ", std::random_device{}(), " ", std::random_device{}()));
  PlanAnswer ran = answer;
  ran.candidates = {plan};
  *request.mutable_plan() = ToProto(ran);
  *request.mutable_ranks() = report.ranks();
  return client->ReportRun(request).status();
}

// Before time is spent on what could not be reported.
Status CheckReport(const RunOptions& options, const PlanAnswer& answer) {
  RETURN_IF_ERROR(options.planner.Connect(kReportDeadlineS).status());
  if (answer.profile_version > 0) return OkStatus();
  return InvalidInput(StrCat(options.plan,
                             ": profileVersion: found 0, expected the version of a profile that the planner of ",
                             "--planner has stored"));
}

StatusOr<GraphPlanAnswer> GraphAnswer(const v1::PlanResponse& message, const std::string& path) {
  StatusOr<GraphPlanAnswer> answer = GraphPlanAnswerFromProto(message);
  if (!answer.ok()) return answer.status().Within(path);
  if (!message.has_graph()) {
    return InvalidInput(StrCat(path,
                               ": graph: found nothing, expected the training graph, which `moeplan plan --graph` ",
                               "puts into its answer"));
  }
  if (const Status status = ValidateTrainingGraph(answer->graph); !status.ok()) return status.Within(path + ": graph");
  return answer;
}

// Refuses the options that go with the plan of a layer alone.
Status CheckGraphOptions(const RunOptions& options) {
  if (!options.db.empty()) return InvalidInput("--db: found beside the plan of a training graph, expected a layer's");
  if (options.planner.given()) {
    return InvalidInput("--planner: found beside the plan of a training graph, expected a layer's");
  }
  if (options.schedule.empty() || options.schedule == kLancet || options.schedule == kUnscheduled) return OkStatus();
  return InvalidInput(StrCat("--schedule: found ", options.schedule, ", expected ", kLancet, " or ", kUnscheduled,
                             ", the orders of a training graph"));
}

Status RunGraph(const RunOptions& options, const GraphPlanAnswer& answer) {
  RETURN_IF_ERROR(CheckGraphOptions(options));
  const bool unscheduled = options.schedule == kUnscheduled;
  const LancetAnswer plan = unscheduled ? agent::UnscheduledPlan(answer) : answer.lancet;
  const StatusOr<StepTasks> tasks = BuildStepTasks(answer.graph, plan);
  if (!tasks.ok()) return tasks.status().Within(options.plan);
  ASSIGN_OR_RETURN(std::optional<agent::Fleet> fleet, options.cluster.Start(/*computes=*/false));
  if (!fleet) return OkStatus();
  ASSIGN_OR_RETURN(
      const v1::RunReport report,
      agent::RunStep(*fleet, answer, unscheduled ? agent::StepOrder::kUnscheduled : agent::StepOrder::kLancet));
  fleet.reset();
  if (!options.trace.empty()) {
    v1::Plan predicted;
    *predicted.mutable_timeline() = ToProto(plan).timeline();
    RETURN_IF_ERROR(WriteFile(options.trace, agent::ChromeTrace(tasks->graph, predicted, report)));
  }
  if (options.json) return (PrintJson(report), OkStatus());
  std::printf("%s: predicted %s, measured %s ± %s\n", EnumNameOf(report.schedule()).c_str(),
              Duration(report.predicted_time_s()).c_str(), Duration(report.measured_time_s()).c_str(),
              Duration(report.spread_s() / 2).c_str());
  return OkStatus();
}

Status RunLayer(const RunOptions& options, const PlanAnswer& answer) {
  if (options.planner.given()) RETURN_IF_ERROR(CheckReport(options, answer));
  ASSIGN_OR_RETURN(const Plan plan, PickPlan(answer, options));
  ASSIGN_OR_RETURN(std::optional<agent::Fleet> fleet, options.cluster.Start(IsSmall(answer.workload)));
  if (!fleet) return OkStatus();
  const StatusOr<Workload> resolved = ResolveWorkload(answer.workload, fleet->cluster());
  if (!resolved.ok()) return resolved.status().Within(StrCat(options.plan, ": workload"));
  const StatusOr<TaskGraph> built = BuildPlan(plan, WithExpectedSlots(*resolved), fleet->cluster());
  if (!built.ok()) return built.status().Within(StrCat(options.plan, ": ", Name(plan.knobs.family)));
  const TaskGraph& graph = *built;
  // Before time is spent on what could not be kept.
  std::optional<Store> store;
  PlanId kept;
  if (!options.db.empty()) {
    ASSIGN_OR_RETURN(store, Store::Open(options.db));
    ASSIGN_OR_RETURN(kept, SavePlan(*store, answer));
  }
  ASSIGN_OR_RETURN(const v1::RunReport report, agent::RunPlan(*fleet, *resolved, plan));
  fleet.reset();
  if (!options.trace.empty()) {
    const std::string trace = agent::ChromeTrace(PartOf(graph, resolved->phase), ToProto(plan), report);
    RETURN_IF_ERROR(WriteFile(options.trace, trace));
  }
  if (options.json) {
    PrintJson(report);
  } else {
    PrintReport(report);
  }
  // Last: what was measured is out by now.
  if (store) RETURN_IF_ERROR(SaveRun(*store, kept, report));
  return options.planner.given() ? Report(options, answer, plan, report) : OkStatus();
}

Status Run(const RunOptions& options) {
  ASSIGN_OR_RETURN(const auto message, ReadJsonFile<v1::PlanResponse>(options.plan));
  if (message.rules().has_lancet() && !message.has_workload()) {
    ASSIGN_OR_RETURN(const GraphPlanAnswer answer, GraphAnswer(message, options.plan));
    return RunGraph(options, answer);
  }
  ASSIGN_OR_RETURN(const PlanAnswer answer, LayerAnswer(message, options.plan));
  return RunLayer(options, answer);
}

}  // namespace

void AddRun(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* command = AddCommand(app, invocation, "run", "Run a plan on real ranks and compare it with its prediction",
                                 "moeplan run --plan plan.json --local 4 --schedule BASELINE --trace trace.json",
                                 [options] { return Run(*options); });
  options->cluster.Add(*command);
  command->add_option("--plan", options->plan, "PLANRESPONSE.json, as `moeplan plan --json` prints it")->required();
  command->add_option(
      "--schedule", options->schedule,
      "The first candidate of that name (default: the best); of a training graph LANCET or UNSCHEDULED");
  command->add_option("--trace", options->trace, "Write a Chrome/Perfetto trace: measured and predicted");
  command->add_option("--db", options->db, "Database to keep the plan and the report in (made when absent)");
  options->planner.Add(*command, *command, "HOST:PORT of the planner whose plan it is: report the run to it");
  command->add_flag("--json", options->json, "Print the report as JSON");
}

}  // namespace moeplan::cli
