#include "planner/lancet/model_graph.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

#include "models/text.h"
#include "planner/lancet/graph/hidden_exchanges.h"
#include "planner/lancet/graph/step_costs.h"
#include "planner/lancet/graph/tape.h"
#include "planner/layout/layout_rules.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/moe_plans.h"
#include "planner/layout/stages.h"

namespace moeplan::planner {
namespace {

constexpr double kMostGraphTokens = 1 << 30;
constexpr int kMostDegree = 1 << 15, kMostRanks = 1 << 30;

// Says where the ranks of a graph lie.
struct Placement {
  LayoutPoint point;
  int gpus_per_node = 1;
};

// Turns the options into a layout, and into a request for it, as `layout` and `step` have both.
Layout LayoutOf(const ModelGraphOptions& options) {
  return {.tensor_parallel = options.tensor_parallel,
          .expert_parallel = options.expert_parallel,
          .expert_sharding_parallel = options.expert_sharding_parallel,
          .context_parallel = options.context_parallel,
          .pipeline_parallel = options.pipeline_parallel,
          .data_parallel = std::max(1, options.stage_ranks() / (options.tensor_parallel * options.context_parallel))};
}
LayoutRequest RequestOf(const ModelConfig& model, const ModelGraphOptions& options) {
  LayoutRequest request;
  request.model = model;
  request.gpus = options.ranks();
  // One micro-batch; interleaved stages take as many as there are stages.
  const long long micro_batches = options.virtual_stages > 1 ? options.pipeline_parallel : 1;
  request.global_batch = static_cast<int>(std::min<long long>(
      std::numeric_limits<int>::max(), micro_batches * options.batch * LayoutOf(options).data_parallel));
  request.sequence_length = options.sequence_length;
  request.zero_stage = options.zero_stage;
  request.gradient_bytes = options.gradient_bytes;
  request.sequence_parallel = options.sequence_parallel;
  request.capacity_factor = options.capacity_factor;
  request.bytes_per_element = options.bytes_per_element;
  request.stages = options.stages;
  request.virtual_stages = options.virtual_stages;
  request.recompute = options.recompute;
  request.recompute_modules = options.recompute_modules;
  request.recompute_layers = options.recompute_layers;
  request.recompute_chunk = options.recompute_chunk;
  request.attention = options.attention;
  request.next_tokens = options.next_tokens;
  request.context_exchange = options.context_exchange;
  request.dispatcher = options.dispatcher;
  request.transport = options.transport;
  request.precision = options.precision;
  request.overlaps_tensor = options.overlaps_tensor;
  request.overlaps_shared_experts = false;  // What runs beside what is for a plan of the graph to say.
  return request;
}

StepSizes SizesOf(const ModelConfig& model, const ModelGraphOptions& options) {
  StepSizes sizes = {.layer = LayerOf(model),
                     .layout = {.tensor_parallel = options.tensor_parallel,
                                .expert_parallel = options.expert_parallel,
                                .expert_sharding_parallel = options.expert_sharding_parallel,
                                .context_parallel = options.context_parallel},
                     .dropless = options.dropless,
                     .bytes_per_element = options.bytes_per_element,
                     .gradient_bytes = options.gradient_bytes,
                     .precision = options.precision,
                     .dispatching = DispatchingOf(RequestOf(model, options))};
  sizes.layer.batch = options.batch;
  sizes.layer.sequence_length = options.sequence_length;
  sizes.layer.capacity_factor = options.capacity_factor;
  sizes.layer.bytes_per_element = options.bytes_per_element;
  sizes.layer.shared_hidden_dim = 0;
  return sizes;
}

// Parts of a range are of whole samples, since attention sees a sample's tokens together.
int MostParts(const ModelGraphOptions& options) { return std::min(options.max_parts, options.batch); }

Tape TapeOf(const ModelGraphOptions& options, const Placement& placement, Counts counts, StepCosts& costs) {
  TapeOptions tape = {.counts = counts,
                      .gate = options.gate,
                      .max_parts = MostParts(options),
                      .zero_stage = options.zero_stage,
                      .bytes_per_element = options.bytes_per_element,
                      .gradient_bytes = options.gradient_bytes,
                      .dense = {DenseReplicas(placement.point, placement.gpus_per_node)},
                      .experts = {ExpertReplicas(placement.point, placement.gpus_per_node)}};
  tape.replicas_have_own_stream =
      options.zero_stage == kMaxZeroStage || options.tensor_parallel > 1 || options.context_parallel > 1;
  if (tape.replicas_have_own_stream) {
    tape.dense.stride = options.tensor_parallel;
    tape.experts.stride = options.expert_ranks();
  }
  return Tape(tape, costs);
}

Transformer TransformerOf(const LayoutRequest& request, const ModelGraphOptions& options, const Placement& placement) {
  const GroupShape whole_experts = {options.expert_parallel, options.ranks_per_node};
  return {.request = request,
          .point = placement.point,
          .gpus_per_node = placement.gpus_per_node,
          .expert_group = options.expert_sharding_parallel > 1
                              ? ShapeOf(Group::kExpertShard, placement.point.layout, placement.gpus_per_node)
                              : whole_experts};
}

// Layers of the pipeline's virtual stages, in its order.
std::vector<LayerRun> RunsOf(const LayoutRequest& request, int pipeline) {
  std::vector<LayerRun> runs;
  if (pipeline == 1) return {{.count = request.model.layers()}};
  int first = 0;
  for (const int layers : LayersOfStages(request, pipeline)) {
    runs.push_back({.first = first, .count = layers, .embeds = runs.empty(), .predicts = false});
    first += layers;
  }
  runs.back().predicts = true;
  return runs;
}

Status Bad(const char* what, const std::string& found, const std::string& expected) {
  return InvalidInput(StrCat(what, ": found ", found, ", expected ", expected));
}

Status CheckOptions(const ModelConfig& model, const ModelGraphOptions& options) {
  const auto whole = [](const char* what, int value, int most) {
    if (value >= 1 && value <= most) return OkStatus();
    return Bad(what, StrCat(value), StrCat("a whole number of 1 to ", most));
  };
  if (model.moe_layers() == 0) return Bad("model", "no layer of experts", "a Mixture-of-Experts model");
  RETURN_IF_ERROR(whole("batch", options.batch, 1 << 24));
  RETURN_IF_ERROR(whole("sequence length", options.sequence_length, 1 << 24));
  if (const double tokens = static_cast<double>(options.batch) * options.sequence_length; tokens > kMostGraphTokens) {
    return Bad("batch × sequence length", StrCat(tokens), StrCat("at most ", kMostGraphTokens, " tokens"));
  }
  RETURN_IF_ERROR(whole("expert parallel", options.expert_parallel, model.experts));
  RETURN_IF_ERROR(whole("expert sharding parallel", options.expert_sharding_parallel, kMostDegree));
  RETURN_IF_ERROR(whole("tensor parallel", options.tensor_parallel, kMostDegree));
  RETURN_IF_ERROR(whole("context parallel", options.context_parallel, kMostDegree));
  RETURN_IF_ERROR(whole("pipeline parallel", options.pipeline_parallel, kMostDegree));
  if (model.experts % options.expert_parallel != 0) {
    return Bad("expert parallel", StrCat(options.expert_parallel),
               StrCat("a divisor of the ", model.experts, " experts"));
  }
  RETURN_IF_ERROR(whole("ranks per node", options.ranks_per_node, options.expert_parallel));
  if (options.expert_parallel % options.ranks_per_node != 0) {
    return Bad("ranks per node", StrCat(options.ranks_per_node),
               StrCat("a divisor of expert parallel ", options.expert_parallel, ": as many ranks on each node"));
  }
  const double degrees = 1.0 * options.expert_parallel * options.expert_sharding_parallel * options.tensor_parallel *
                         options.context_parallel * options.pipeline_parallel;
  if (degrees > kMostRanks) {
    return Bad("degrees", StrCat(degrees, " ranks"), StrCat("at most ", kMostRanks, ", multiplied with each other"));
  }
  if (options.zero_stage < 0 || options.zero_stage > kMaxZeroStage) {
    return Bad("zero", StrCat(options.zero_stage), StrCat("a stage of 0 to ", kMaxZeroStage));
  }
  const int ranks = options.expert_parallel * options.pipeline_parallel;
  if (options.gpus != 0 && (options.gpus < ranks || options.gpus % ranks != 0)) {
    return Bad("gpus", StrCat(options.gpus),
               StrCat("a multiple of the ", ranks,
                      options.pipeline_parallel > 1 ? " of expert and pipeline parallel" : " of expert parallel"));
  }
  if (options.virtual_stages < 1 || options.virtual_stages > model.layers()) {
    return Bad("virtual stages", StrCat(options.virtual_stages), StrCat("1 to the ", model.layers(), " layers"));
  }
  const int stages = options.pipeline_parallel == 1 ? 1 : options.pipeline_parallel * options.virtual_stages;
  if (const int stage = options.stage.value_or(0); stage < 0 || stage >= stages) {
    return Bad("stage", StrCat(stage), stages == 1 ? "0: there is one stage" : StrCat("0 to ", stages - 1));
  }
  RETURN_IF_ERROR(whole("max parts", options.max_parts, kMostParts));
  if (options.pipeline_parallel == 1 && options.virtual_stages > 1) {
    return Bad("virtual stages", StrCat(options.virtual_stages), "1 where there is one stage");
  }
  if (options.pipeline_parallel == 1 && !options.stages.empty() && options.stages != std::vector{model.layers()}) {
    return Bad("stages", StrCat(options.stages.size()), StrCat("one of all ", model.layers(), " layers, or none"));
  }
  RETURN_IF_ERROR(CheckKept(RequestOf(model, options)));
  if (!(std::isfinite(options.capacity_factor) && options.capacity_factor > 0)) {
    return Bad("capacity factor", StrCat(options.capacity_factor), "a finite number above 0");
  }
  if (options.bytes_per_element != 2 && options.bytes_per_element != 4) {
    return Bad("bytes per element", StrCat(options.bytes_per_element), "2 or 4");
  }
  const auto seconds = [](const char* what, double value) {
    if (std::isfinite(value) && value >= 0) return OkStatus();
    return Bad(what, StrCat(value), "a finite number of seconds, at least 0");
  };
  RETURN_IF_ERROR(seconds("group", options.limits.group_s));
  RETURN_IF_ERROR(seconds("max range", options.limits.max_range_s));
  if (options.paper_limits && (options.limits.group_s > 0 || options.limits.max_range_s > 0)) {
    return Bad("paper limits", "others beside them", "those of the paper or one's own");
  }
  if (options.gate == GateKind::kSwitch && model.top_k != 1) {
    return Bad("gate", "SWITCH", StrCat("another, because the model chooses ", model.top_k, " experts for a token"));
  }
  return OkStatus();
}

// Places the ranks. Their degrees must be those of a layout on the profile's nodes if they share layers or sequences.
StatusOr<Placement> PlacementOf(const ModelConfig& model, const ModelGraphOptions& options, const Profile& profile) {
  const bool across = options.horizontal_contexts.value_or(false);
  const bool shares_experts = options.expert_sharding_parallel > 1;
  const bool in_stages = options.pipeline_parallel > 1;
  const bool exchanges_otherwise = options.dispatcher != Dispatcher::kAllToAll ||
                                   options.transport != Transport::kNccl || options.precision != Precision::kBf16 ||
                                   options.overlaps_tensor;
  if (options.tensor_parallel == 1 && options.context_parallel == 1 && !shares_experts && !across && !in_stages &&
      !exchanges_otherwise) {
    return Placement{{.layout = LayoutOf(options), .micro_batch = options.batch}, options.PerNode()};
  }
  if (model.encoder_layers > 0) {
    return Bad("model", "an encoder",
               "one without, where layers or sequences are shared by ranks or cut in stages, and beside a dispatcher, "
               "overlapTensorParallel and less than BF16");
  }
  const LayoutRequest request = RequestOf(model, options);
  RETURN_IF_ERROR(CheckPrecision(request, profile));
  RETURN_IF_ERROR(CheckLayoutRequest(request, profile.cluster));
  const Cluster cluster = ClusterOf(request, profile.cluster);
  Layout layout = LayoutOf(options);
  layout.data_parallel = 0;
  ASSIGN_OR_RETURN(const LayoutPoint point,
                   PointOf(request, cluster, layout, options.batch, options.horizontal_contexts));
  return Placement{point, cluster.gpus_per_node};
}

ModelGraphOptions OptionsOf(const LayoutRequest& request, const LayoutPoint& point, const Cluster& cluster) {
  const Layout& layout = point.layout;
  return {.batch = point.micro_batch,
          .sequence_length = request.sequence_length,
          .expert_parallel = layout.expert_parallel,
          .ranks_per_node = std::min(layout.expert_parallel, cluster.gpus_per_node),
          .expert_sharding_parallel = layout.expert_sharding_parallel,
          .tensor_parallel = layout.tensor_parallel,
          .context_parallel = layout.context_parallel,
          .pipeline_parallel = layout.pipeline_parallel,
          .horizontal_contexts = point.horizontal_contexts,
          .dispatcher = request.dispatcher,
          .transport = request.transport,
          .precision = request.precision,
          .sequence_parallel = request.sequence_parallel,
          .gpus = request.gpus,
          .gpus_per_node = cluster.gpus_per_node,
          .capacity_factor = request.capacity_factor,
          .dropless = DropsNothing(request),
          .bytes_per_element = request.bytes_per_element,
          .zero_stage = request.zero_stage,
          .gradient_bytes = request.gradient_bytes};
}

// The run on whose way there and back a micro-batch is longest, the first of equal ones.
template <typename InstructionsOfRun>
LayerRun LongestRun(const std::vector<LayerRun>& runs, InstructionsOfRun instructions_of) {
  const LayerRun* longest = &runs.front();
  double longest_s = -1;
  for (const LayerRun& run : runs) {
    double run_s = 0;
    for (const Instruction& one : instructions_of(run)) run_s += *one.time_s;
    if (run_s > longest_s) longest = &run, longest_s = run_s;
  }
  return *longest;
}

double ForwardS(const TrainingGraph& graph) {
  double forward_s = 0;
  for (const Instruction& one : graph.instructions) forward_s += one.phase == Pass::kForward ? *one.time_s : 0;
  return forward_s;
}

// At least 1: a stage may have dense layers alone.
int MoeLayersIn(const TrainingGraph& graph) {
  const auto combines = [](const Instruction& one) {
    return one.op == InstructionOp::kCombine && one.phase == Pass::kForward;
  };
  return std::max(1, static_cast<int>(std::ranges::count_if(graph.instructions, combines)));
}

}  // namespace

StatusOr<TrainingGraph> TrainingGraphOf(const ModelConfig& model, const ModelGraphOptions& options,
                                        const Profile& profile, PriceNotes& notes) {
  RETURN_IF_ERROR(CheckOptions(model, options));
  ASSIGN_OR_RETURN(const Placement placement, PlacementOf(model, options, profile));
  StepCosts costs(SizesOf(model, options), profile);
  const Transformer transformer = TransformerOf(RequestOf(model, options), options, placement);
  const auto instructions_of = [&](const LayerRun& run, Counts counts) {
    return InstructionsOf(transformer, run, TapeOf(options, placement, counts, costs));
  };
  const std::vector<LayerRun> runs = RunsOf(transformer.request, options.pipeline_parallel);
  const LayerRun run =
      runs.size() == 1 || options.stage
          ? runs[options.stage.value_or(0)]
          : LongestRun(runs, [&](const LayerRun& one) { return instructions_of(one, Counts::kMicroBatch); });
  TrainingGraph graph = {.instructions = instructions_of(run, Counts::kStep), .max_parts = MostParts(options)};
  graph.workload = costs.workload();
  RETURN_IF_ERROR(costs.Missing());
  notes.Merge(costs.notes());
  const RangeLimits limits = options.paper_limits ? LimitsOfPaper(ForwardS(graph), MoeLayersIn(graph)) : options.limits;
  graph.group_s = limits.group_s;
  graph.max_range_s = limits.max_range_s;
  if (const size_t size = graph.instructions.size(); options.overlaps_tensor && size > kMostInstructions) {
    return Bad("layout.overlapTensorParallel", StrCat("true, with which a graph has ", size, " instructions"),
               StrCat("false, or more pipeline stages: graphs have at most ", kMostInstructions));
  }
  RETURN_IF_ERROR(ValidateTrainingGraph(graph));
  return graph;
}

StatusOr<TrainingGraph> GraphOfRun(const LayoutRequest& request, const LayoutPoint& point, const LayerRun& run,
                                   const Profile& profile, PriceNotes& notes) {
  const ModelGraphOptions options = OptionsOf(request, point, profile.cluster);
  RETURN_IF_ERROR(CheckOptions(request.model, options));
  const Placement placement = {point, profile.cluster.gpus_per_node};
  StepCosts costs(SizesOf(request.model, options), profile);
  TrainingGraph graph = {.instructions = InstructionsOf(TransformerOf(request, options, placement), run,
                                                        TapeOf(options, placement, Counts::kMicroBatch, costs)),
                         .max_parts = MostParts(options)};
  HideExchanges(request, point, run, graph);
  graph.workload = costs.workload();
  RETURN_IF_ERROR(costs.Missing());
  notes.Merge(costs.notes());
  RETURN_IF_ERROR(ValidateTrainingGraph(graph));
  return graph;
}

}  // namespace moeplan::planner
