#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/warnings.h"
#include "models/model/hf_config.h"
#include "models/text.h"
#include "planner/lancet/model_graph.h"
#include "proto/convert/enums.h"
#include "proto/convert/training_graph.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

struct GraphCommandOptions {
  SourceOption source;
  std::string model, gate = "TOP_K";
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

StatusOr<ModelConfig> ReadModel(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  return ModelFromHfConfig(text, path);
}

Status Run(const GraphCommandOptions& options) {
  ASSIGN_OR_RETURN(const ModelConfig model, ReadModel(options.model));
  ASSIGN_OR_RETURN(const Profile profile, options.source.LoadProfile());
  planner::ModelGraphOptions graph_options = options.graph;
  ASSIGN_OR_RETURN(graph_options.gate, GateFrom(options.gate));
  graph_options.ranks_per_node = options.ranks_per_node;
  if (options.ranks_per_node == 0) {
    graph_options.ranks_per_node = std::min(options.graph.expert_parallel, profile.cluster.gpus_per_node);
  }
  graph_options.sequence_parallel = !options.whole_rows;
  graph_options.gpus_per_node = profile.cluster.gpus_per_node;
  PriceNotes notes;
  const StatusOr<TrainingGraph> graph = planner::TrainingGraphOf(model, graph_options, profile, notes);
  if (!graph.ok()) return graph.status().Within(options.model);
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
  options->source.Add(*command);
  command->add_option("--model", options->model, "The model's config.json")->required();
  command
      ->add_option("--batch", options->graph.batch, "Samples of one rank, or of the ranks that share layers or samples")
      ->required();
  command->add_option("--sequence-length", options->graph.sequence_length, "Tokens of a sample")->required();
  command->add_option("--expert-parallel", options->graph.expert_parallel, "Ranks over which a layer's experts lie")
      ->required();
  command->add_option("--ranks-per-node", options->ranks_per_node,
                      "How many of these are on one node (default: all that a node of the profile has room for)");
  command
      ->add_option("--tensor-parallel", options->graph.tensor_parallel,
                   "Ranks that share heads, columns of networks and the vocabulary")
      ->capture_default_str();
  command->add_option("--context-parallel", options->graph.context_parallel, "Ranks that share a sample's tokens")
      ->capture_default_str();
  command->add_flag("--no-sequence-parallel", options->whole_rows,
                    "Tensor-parallel ranks keep whole rows and all-reduce them");
  command->add_option("--gpus", options->graph.gpus,
                      "Ranks in all, which sum gradients (default: as few as have room for all degrees)");
  command
      ->add_option("--zero", options->graph.zero_stage,
                   "Stage of ZeRO, 0 to 3. 0: gradients are summed whole; 1 and 2: for each rank's part of the "
                   "optimizer; 3: and weights are gathered before each pass")
      ->check(CLI::Range(0, kMaxZeroStage))
      ->capture_default_str();
  command->add_option("--capacity-factor", options->graph.capacity_factor, "Slots for each token and choice")
      ->capture_default_str();
  command->add_option("--bytes-per-element", options->graph.bytes_per_element, "2 or 4")->capture_default_str();
  command->add_option("--gate", options->gate, "TOP_K, SWITCH, BATCH_PRIORITIZED, ...")->capture_default_str();
  command->add_option("--max-parts", options->graph.max_parts, "Most parts of a range")->capture_default_str();
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
