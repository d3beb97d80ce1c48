#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/warnings.h"
#include "models/routing/expert_load.h"
#include "models/schedule/chunk_units.h"
#include "models/text.h"
#include "proto/convert/plan.h"
#include "proto/convert/training_graph.h"
#include "proto/convert/workload.h"
#include "proto/json.h"
#include "proto/router_trace/read.h"

namespace moeplan::cli {
namespace {

struct PlanCommandOptions {
  SourceOption source;
  std::string workload, graph;
  std::vector<std::string> router_traces, without;
  std::optional<int> router_layer;
  std::optional<int> top, budget_nodes;
  bool extrapolate = false;
  bool json = false;
};

std::string KnobsText(const Knobs& knobs) {
  std::string text(Name(knobs.family));
  if (knobs.all_to_all != AllToAllAlgorithm::kDirect) text += StrCat(" ", Name(knobs.all_to_all));
  if (knobs.communication_ctas != 0) text += StrCat(" ", knobs.communication_ctas, " CTAs");
  if (knobs.chunks > 1) text += StrCat(" N=", knobs.chunks);
  if (knobs.partition_degree > 1) text += StrCat(" r=", knobs.partition_degree);
  if (!knobs.chunk_shares.empty()) text += StrCat(" ", RatioOf(knobs.chunk_shares));
  if (knobs.overlapped_gather) text += " SAA";
  if (knobs.dispatch_codec != Codec::kNone) text += StrCat(" ", Name(knobs.dispatch_codec), " out");
  if (knobs.combine_codec != Codec::kNone) text += StrCat(" ", Name(knobs.combine_codec), " back");
  return text;
}

void PrintRules(const RuleAnswers& rules) {
  if (rules.parm) {
    std::printf("rule parm:  %s (baseline %s, S1 %s, S2 %s)\n", std::string(Name(rules.parm->choice)).c_str(),
                Duration(rules.parm->t_baseline_s).c_str(), Duration(rules.parm->t_s1_s).c_str(),
                Duration(rules.parm->t_s2_s).c_str());
  }
  if (rules.monta) {
    std::printf("rule monta: %s (baseline %s, O1 %s", std::string(Name(rules.monta->choice)).c_str(),
                Duration(rules.monta->t_baseline_s).c_str(), Duration(rules.monta->o1_time_s).c_str());
    if (rules.monta->o2)
      std::printf(", O2 %s with N=%d", Duration(rules.monta->o2->time_s).c_str(), rules.monta->o2->chunks);
    if (rules.monta->o3)
      std::printf(", O3 %s with N=%d", Duration(rules.monta->o3->time_s).c_str(), rules.monta->o3->chunks);
    std::printf(")\n");
  }
  if (rules.schemoe) {
    std::printf("rule schemoe: r=%d (OptSche %s, best order %s)\n", rules.schemoe->partition_degree,
                Duration(rules.schemoe->opt_sche_time_s).c_str(), Duration(rules.schemoe->optimal_time_s).c_str());
  }
}

void PrintCandidates(const PlanAnswer& answer) {
  std::vector<std::vector<std::string>> rows = {
      {"schedule", "predicted", "90 % interval", "exposed communication", "memory"}};
  const bool exchanges = answer.workload.gradient_bytes > 0;
  if (exchanges) rows.front().insert(rows.front().end(), {"gradients hidden", "exposed"});
  for (const Plan& plan : answer.candidates) {
    char memory[32];
    std::snprintf(memory, sizeof memory, "%.1f MB", plan.memory_bytes / 1e6);
    rows.push_back({KnobsText(plan.knobs), Duration(plan.predicted_time_s),
                    StrCat(Duration(plan.low_s), " – ", Duration(plan.high_s)), Duration(plan.exposed_communication_s),
                    memory});
    if (!exchanges) continue;
    rows.back().insert(rows.back().end(), {Duration(plan.gradients.hidden_s), Duration(plan.gradients.exposed_s)});
  }
  std::fputs(Table(rows).c_str(), stdout);
}

std::string TimeText(const std::optional<double>& time_s) { return time_s ? Duration(*time_s) : "no plan"; }

std::string RatioText(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", ratio);
  return text;
}

void PrintRouting(const Workload& workload, const RoutingReport& routing) {
  Workload roomier = workload;
  roomier.layer.capacity_factor = routing.capacity.capacity_factor;
  std::printf(
      "routing: the busiest expert gets %s times the mean, the busiest rank %s times; %s of the pairs are dropped\n",
      RatioText(routing.busiest_expert_ratio).c_str(), RatioText(routing.busiest_rank_ratio).c_str(),
      Percent(routing.dropped_share).c_str());
  std::vector<std::vector<std::string>> rows = {{"with", "busiest rank", "dropped", "predicted"}};
  rows.push_back({StrCat("capacityFactor ", RatioText(routing.capacity.capacity_factor)), "",
                  Percent(DroppedShare(roomier)), TimeText(routing.capacity.predicted_time_s)});
  if (const auto& placement = routing.placement) {
    rows.push_back({"experts placed otherwise", RatioText(placement->busiest_rank_ratio),
                    Percent(routing.dropped_share), TimeText(placement->predicted_time_s)});
  }
  if (const auto& replicas = routing.replicas) {
    char megabytes[32];
    std::snprintf(megabytes, sizeof megabytes, "%.1f", replicas->extra_weight_bytes / 1e6);
    rows.push_back({StrCat(replicas->extra_experts_per_rank, " copy more on a rank (", megabytes, " MB)"),
                    RatioText(replicas->busiest_rank_ratio), Percent(replicas->dropped_share),
                    TimeText(replicas->predicted_time_s)});
  }
  std::printf("%s\n", Table(rows).c_str());
}

void PrintAnswer(const PlanAnswer& answer) {
  if (!answer.candidates.empty()) PrintCandidates(answer);
  std::printf("\n");
  PrintParagraph(answer.explanation);
  std::printf("\n");
  if (answer.routing) PrintRouting(answer.workload, *answer.routing);
  PrintRules(answer.rules);
  for (const Skipped& skipped : answer.skipped_candidates)
    std::printf("skipped %s: %s\n", skipped.what.c_str(), skipped.reason.c_str());
  for (const Skipped& skipped : answer.skipped_rules)
    std::printf("skipped rule %s: %s\n", skipped.what.c_str(), skipped.reason.c_str());
  PrintWarnings(answer.warnings);
}

StatusOr<ExpertRouting> ReadRouting(const PlanCommandOptions& options, const Layer& layer) {
  StatusOr<RouterTraceReader> reader =
      RouterTraceReader::Make({.experts = layer.experts, .layer = options.router_layer});
  if (!reader.ok()) return reader.status().Within(options.workload);
  for (const std::string& path : options.router_traces) RETURN_IF_ERROR(reader->ReadFile(path));
  ExpertRouting routing;
  ASSIGN_OR_RETURN(routing.tokens_per_expert, reader->TokensPerExpert());
  if (const auto chosen = reader->ExpertsPerToken(); chosen && std::abs(*chosen - layer.top_k) > 0.005) {
    std::fprintf(
        stderr,
        "moeplan: --router-trace: a token chose %.2f experts on average, and layer.topK is %d; only the experts' "
        "shares are taken from it\n",
        *chosen, layer.top_k);
  }
  return routing;
}

StatusOr<Workload> ReadWorkload(const PlanCommandOptions& options) {
  const std::string& path = options.workload;
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  ASSIGN_OR_RETURN(const auto message, FromJson<v1::Workload>(text, path));
  StatusOr<Workload> workload = WorkloadFromProto(message);
  if (!workload.ok()) return workload.status().Within(path);
  if (options.router_traces.empty()) return workload;
  if (workload->routing) {
    return InvalidInput(StrCat("--router-trace: found beside routing in ", path, ", expected one of them"));
  }
  ASSIGN_OR_RETURN(workload->routing, ReadRouting(options, workload->layer));
  return workload;
}

StatusOr<v1::LancetRule::Pass> PassFrom(const std::string& name) {
  if (name == "weight-gradients") return v1::LancetRule::WEIGHT_GRADIENTS;
  if (name == "partition") return v1::LancetRule::PARTITION;
  return InvalidInput(StrCat("--without: found ", name, ", expected weight-gradients or partition"));
}

// Makes the request, but for the workload or graph that is planned.
StatusOr<v1::PlanRequest> RequestOf(const PlanCommandOptions& options) {
  v1::PlanRequest request;
  for (const std::string& name : options.without) {
    ASSIGN_OR_RETURN(const v1::LancetRule::Pass pass, PassFrom(name));
    request.add_without(pass);
  }
  if (options.top) request.set_top(*options.top);
  if (options.budget_nodes) request.set_budget_nodes(*options.budget_nodes);
  request.set_extrapolate(options.extrapolate);
  return request;
}

// Names the option in an error about the field of the request that it sets.
Status InOptions(const Status& status) {
  constexpr std::pair<std::string_view, std::string_view> kOptions[] = {{"top: ", "--top: "},
                                                                        {"budgetNodes: ", "--budget-nodes: "},
                                                                        {"extrapolate: ", "--extrapolate: "},
                                                                        {"without: ", "--without: "}};
  for (const auto& [field, option] : kOptions) {
    if (!status.message().starts_with(field)) continue;
    return {status.code(), StrCat(option, status.message().substr(field.size()))};
  }
  return status;
}

StatusOr<v1::PlanResponse> Ask(const PlanCommandOptions& options, const v1::PlanRequest& request,
                               const std::string& origin) {
  StatusOr<v1::PlanResponse> answer = options.source.Answer(request, origin);
  if (!answer.ok()) return InOptions(answer.status());
  return answer;
}

// The answer is "no" where candidates were priced and none fits. It was printed all the same. Where none could be
// priced, what the rules say is the answer.
Status CheckFeasible(const PlanCommandOptions& options, const v1::PlanResponse& answer) {
  if (answer.candidates_size() > 0 || answer.search().evaluated() == 0) return OkStatus();
  return Infeasible(StrCat(options.workload, ": ", answer.explanation()));
}

void PrintGraphAnswer(const GraphPlanAnswer& answer) {
  const LancetAnswer& lancet = answer.lancet;
  PrintParagraph(answer.explanation);
  std::printf("\n");
  std::vector<std::vector<std::string>> ranges = {{"range", "parts", "time"}};
  for (const LancetAnswer::Partition& one : lancet.partitions) {
    ranges.push_back({StrCat(one.first, " ... ", one.last), StrCat(one.parts), Duration(one.time_s)});
  }
  if (ranges.size() > 1) std::printf("%s\n", Table(ranges).c_str());
  std::vector<std::vector<std::string>> gradients = {{"weight gradient", "beside"}};
  for (const LancetAnswer::Assignment& one : lancet.weight_gradients) {
    gradients.push_back({one.instruction, one.all_to_all});
  }
  if (gradients.size() > 1) std::printf("%s\n", Table(gradients).c_str());
  PrintWarnings(answer.warnings);
}

Status RunGraph(const PlanCommandOptions& options) {
  if (!options.router_traces.empty()) {
    return InvalidInput("--router-trace: found beside --graph, expected with --workload");
  }
  ASSIGN_OR_RETURN(const TrainingGraph graph, ReadTrainingGraph(options.graph));
  ASSIGN_OR_RETURN(v1::PlanRequest request, RequestOf(options));
  *request.mutable_graph() = ToProto(graph);
  ASSIGN_OR_RETURN(const v1::PlanResponse response, Ask(options, request, options.graph));
  if (options.json) return options.source.PrintAnswer(response);
  ASSIGN_OR_RETURN(const GraphPlanAnswer answer, GraphPlanAnswerFromProto(response));
  PrintGraphAnswer(answer);
  return OkStatus();
}

Status Run(const PlanCommandOptions& options) {
  if (options.workload.empty() == options.graph.empty()) {
    return InvalidInput(StrCat("found ", options.graph.empty() ? "neither" : "both", " of --workload and --graph, ",
                               "expected WORKLOAD.json or GRAPH.json"));
  }
  if (options.router_layer && options.router_traces.empty()) {
    return InvalidInput("--router-layer: found alone, expected beside --router-trace");
  }
  if (!options.graph.empty()) return RunGraph(options);
  ASSIGN_OR_RETURN(const Workload workload, ReadWorkload(options));
  ASSIGN_OR_RETURN(v1::PlanRequest request, RequestOf(options));
  *request.mutable_workload() = ToProto(workload);
  ASSIGN_OR_RETURN(const v1::PlanResponse response, Ask(options, request, options.workload));
  if (options.json) {
    RETURN_IF_ERROR(options.source.PrintAnswer(response));
  } else {
    ASSIGN_OR_RETURN(const PlanAnswer answer, PlanAnswerFromProto(response));
    PrintAnswer(answer);
  }
  return CheckFeasible(options, response);
}

}  // namespace

void AddPlan(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<PlanCommandOptions>();
  CLI::App* command =
      AddCommand(app, invocation, "plan", "Say how an MoE layer, or a training graph, should run",
                 "moeplan plan --db moeplan.db --workload workload.json --top 5", [options] { return Run(*options); });
  options->source.Add(*command);
  command->add_option("--workload", options->workload, "WORKLOAD.json");
  command->add_option("--graph", options->graph,
                      "GRAPH.json, a training graph, instead of a workload; needs no SOURCE where every time is in it");
  command->add_option("--without", options->without,
                      "Leave out one of Lancet's passes over a graph: weight-gradients or partition; repeated, both");
  command->add_option("--router-trace", options->router_traces,
                      "Router traces, JSON lines: how often each expert is chosen; several are taken together");
  command->add_option("--router-layer", options->router_layer, "The layer whose records count (default: all)");
  command->add_option("--top", options->top, "How many candidates to print (default: all)");
  command->add_flag("--extrapolate", options->extrapolate, kExtrapolateHelp);
  command->add_option("--budget-nodes", options->budget_nodes,
                      "How many states of launch orders may be searched; more take longer, and may find faster plans "
                      "or prove the best (default: 10000)");
  command->add_flag("--json", options->json, "Print the whole answer as JSON");
}

}  // namespace moeplan::cli
