#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cli/command.h"
#include "cli/named_model.h"
#include "cli/options.h"
#include "cli/read_layout.h"
#include "cli/warnings.h"
#include "models/text.h"
#include "planner/lancet/graph_layout.h"
#include "planner/lancet/model_graph.h"
#include "planner/shipped/names.h"
#include "proto/convert/enums.h"
#include "proto/convert/step.h"
#include "proto/convert/training_graph.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

struct GraphCommandOptions {
  SourceOption source;
  std::string model, layout, gate = "TOP_K";
  std::optional<int> batch, expert_parallel;
  planner::ModelGraphOptions graph;
  int ranks_per_node = 0;  // 0: as many as a node of the profile has.
  bool whole_rows = false;
  bool json = false;
};

StatusOr<GateKind> GateFrom(const std::string& name) {
  const auto& type = *v1::Gate::Kind_descriptor();
  const std::optional<int> number = EnumNumber(type, name);
  if (!number) return error::UnknownEnum("--gate", name, type);
  return EnumFromProto<GateKind>(static_cast<v1::Gate::Kind>(*number), "--gate");
}

// The options of the layout, where one is given, with all else that the command line says.
StatusOr<planner::ModelGraphOptions> GraphOptions(const GraphCommandOptions& options, const ModelConfig& model) {
  planner::ModelGraphOptions graph = options.graph;
  if (graph.gpus == 0) graph.gpus = planner::GpusOfHardware(options.source.hardware());
  graph.sequence_parallel = !options.whole_rows;
  if (options.layout.empty()) {
    if (!options.batch) return InvalidInput("--batch: found nothing, expected samples, or a --layout");
    if (!options.expert_parallel)
      return InvalidInput("--expert-parallel: found nothing, expected ranks, or a --layout");
    graph.dropless = graph.capacity_factor == 0;
    if (graph.dropless) graph.capacity_factor = 1;
    graph.batch = *options.batch;
    graph.expert_parallel = *options.expert_parallel;
    return graph;
  }
  if (graph.gpus < 1) return InvalidInput("--gpus: found nothing, expected how many, beside --layout");
  StepQuestion question;
  question.request.model = model;
  question.request.gpus = graph.gpus;
  question.request.sequence_length = graph.sequence_length;
  question.request.bytes_per_element = graph.bytes_per_element;
  ASSIGN_OR_RETURN(const v1::StepLayout layout, ReadLayout(options.layout, "--layout"));
  RETURN_IF_ERROR(ReadStepLayout(layout, "layout", question));
  ASSIGN_OR_RETURN(planner::ModelGraphOptions of_layout, planner::GraphOptionsOf(question));
  of_layout.stage = graph.stage;
  of_layout.max_parts = graph.max_parts;
  of_layout.limits = graph.limits;
  of_layout.paper_limits = graph.paper_limits;
  return of_layout;
}

// Names the option in an error about what it sets; all other errors are about the model.
Status InOptions(const GraphCommandOptions& options, const Status& status) {
  constexpr std::string_view kOptions[] = {"batch",
                                           "sequence length",
                                           "expert parallel",
                                           "expert sharding parallel",
                                           "ranks per node",
                                           "tensor parallel",
                                           "context parallel",
                                           "pipeline parallel",
                                           "stage",
                                           "gpus",
                                           "zero",
                                           "capacity factor",
                                           "bytes per element",
                                           "gate",
                                           "max parts",
                                           "group",
                                           "max range",
                                           "paper limits"};
  const std::string_view message = status.message();
  const std::string_view what = message.substr(0, message.find(':'));
  // A layout is one option that says several of these.
  if (!options.layout.empty() || std::ranges::find(kOptions, what) == std::end(kOptions)) {
    return status.Within(options.model);
  }
  std::string option = "--";
  std::ranges::replace_copy(what, std::back_inserter(option), ' ', '-');
  return {status.code(), StrCat(option, message.substr(what.size()))};
}

Status Run(const GraphCommandOptions& options) {
  ASSIGN_OR_RETURN(const ModelConfig model, ModelOf(options.model));
  ASSIGN_OR_RETURN(planner::ModelGraphOptions graph_options, GraphOptions(options, model));
  ASSIGN_OR_RETURN(const Profile profile, options.source.LoadProfileFor(model, graph_options.gpus));
  ASSIGN_OR_RETURN(graph_options.gate, GateFrom(options.gate));
  graph_options.ranks_per_node = options.ranks_per_node;
  if (options.ranks_per_node == 0) {
    const int gpus_per_node = profile.cluster.gpus_per_node;
    graph_options.ranks_per_node = std::min(graph_options.expert_parallel, gpus_per_node);
    if (graph_options.expert_parallel % graph_options.ranks_per_node != 0) {
      return InvalidInput(StrCat("--expert-parallel: found ", graph_options.expert_parallel, " over nodes of ",
                                 gpus_per_node,
                                 " GPUs, expected as many ranks on each node; --ranks-per-node says how many"));
    }
  }
  graph_options.gpus_per_node = profile.cluster.gpus_per_node;
  PriceNotes notes;
  const StatusOr<TrainingGraph> graph = planner::TrainingGraphOf(model, graph_options, profile, notes);
  if (!graph.ok()) return InOptions(options, graph.status());
  PrintWarnings(notes.Warnings());
  PrintJson(ToProto(*graph));
  return OkStatus();
}

}  // namespace

void AddGraph(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<GraphCommandOptions>();
  CLI::App* command =
      AddCommand(app, invocation, "graph", "Print the training graph of a Hugging Face model, for plan --graph",
                 "moeplan graph --profile profile.json --model config.json --batch 8 --sequence-length 2048 "
                 "--expert-parallel 8 > graph.json",
                 [options] { return Run(*options); });
  options->source.AddWithHardware(*command);
  command->add_option("--model", options->model, "config.json of a Hugging Face model, or the name of one that ships")
      ->required();
  CLI::Option* const layout = command->add_option(
      "--layout", options->layout,
      "JSON, or its file: a layout of --gpus as step reads it, or a row of layout, instead of the options that say so");
  command->add_option("--batch", options->batch, "Samples of one rank, or of the ranks that share layers or samples");
  command->add_option("--sequence-length", options->graph.sequence_length, "Tokens of a sample")->required();
  command->add_option("--expert-parallel", options->expert_parallel, "Ranks over which a layer's experts lie");
  command
      ->add_option("--expert-sharding-parallel", options->graph.expert_sharding_parallel,
                   "Ranks that share each expert, in parts of its hidden dimension")
      ->capture_default_str();
  command->add_option("--ranks-per-node", options->ranks_per_node,
                      "How many of these are on one node (default: all that a node of the profile has room for)");
  command
      ->add_option("--tensor-parallel", options->graph.tensor_parallel,
                   "Ranks that share heads, columns of networks and the vocabulary")
      ->capture_default_str();
  command->add_option("--context-parallel", options->graph.context_parallel, "Ranks that share a sample's tokens")
      ->capture_default_str();
  command
      ->add_option("--pipeline-parallel", options->graph.pipeline_parallel,
                   "Stages of the model's layers, of one of which the graph is")
      ->capture_default_str();
  command->add_option("--stage", options->graph.stage,
                      "Which stage, from 0 (default: the one on whose way a micro-batch is longest)");
  command->add_flag("--no-sequence-parallel", options->whole_rows,
                    "Tensor-parallel ranks keep whole rows and all-reduce them");
  command->add_option(
      "--gpus", options->graph.gpus,
      "Ranks in all, which sum gradients (default: those of --hardware NAME:DOMAINSxGPUS, else as few as have room "
      "for all degrees)");
  command
      ->add_option("--zero", options->graph.zero_stage,
                   "Stage of ZeRO, 0 to 3. 0: gradients are summed whole; 1 and 2: for each rank's part of the "
                   "optimizer; 3: and weights are gathered before each pass")
      ->check(CLI::Range(0, kMaxZeroStage))
      ->capture_default_str();
  command
      ->add_option("--capacity-factor", options->graph.capacity_factor,
                   "Slots for each token and choice; 0: none is dropped, as in a --layout without capacityFactor")
      ->capture_default_str();
  for (const char* option :
       {"--batch", "--expert-parallel", "--ranks-per-node", "--expert-sharding-parallel", "--tensor-parallel",
        "--context-parallel", "--pipeline-parallel", "--no-sequence-parallel", "--zero", "--capacity-factor"}) {
    command->get_option(option)->excludes(layout);
  }
  command->add_option("--bytes-per-element", options->graph.bytes_per_element, "2 or 4")->capture_default_str();
  command->add_option("--gate", options->gate, "TOP_K, SWITCH, BATCH_PRIORITIZED, ...")->capture_default_str();
  command->add_option("--max-parts", options->graph.max_parts, "Most parts of a range, and no more than samples")
      ->capture_default_str();
  command->add_option("--group", options->graph.limits.group_s,
                      "Seconds up to which neighbours are merged; ranges start and end between groups (default 0: "
                      "wherever they can)");
  command->add_option("--max-range", options->graph.limits.max_range_s,
                      "Seconds that a range takes uncut, at most (default 0: no limit)");
  command->add_flag("--paper-limits", options->graph.paper_limits,
                    "Groups and ranges as in Lancet's evaluation: five groups from one MoE layer to the next, ranges "
                    "of one such stretch");
  command->add_flag("--json", options->json, "Print JSON, which it does anyway");
}

}  // namespace moeplan::cli
