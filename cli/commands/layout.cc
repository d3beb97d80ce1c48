#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string_view>

#include "cli/command.h"
#include "cli/named_model.h"
#include "cli/options.h"
#include "cli/read_layout.h"
#include "cli/warnings.h"
#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "planner/layout/lancet_rows.h"
#include "planner/layout/rank_layouts.h"
#include "proto/convert/layouts.h"
#include "proto/convert/step.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

struct LayoutCommandOptions {
  SourceOption source;
  std::string model, settings, recompute = "none", attention = "flash", precision = "bf16";
  LayoutRequest request;
  bool whole_rows = false, lancet = false;
  bool json = false;
};

StatusOr<LayoutRequest> RequestOf(const LayoutCommandOptions& options) {
  LayoutRequest request = options.request;
  ASSIGN_OR_RETURN(request.model, ModelOf(options.model));
  if (request.top < 1) return InvalidInput(StrCat("--top: found ", request.top, ", expected at least 1"));
  if (request.max_network_scale < 0) {
    return InvalidInput(
        StrCat("--network-scale: found ", request.max_network_scale, ", expected at least 1, or 0 for any"));
  }
  if (!options.settings.empty()) {
    ASSIGN_OR_RETURN(const v1::StepLayout settings, ReadLayout(options.settings, "--settings"));
    RETURN_IF_ERROR(ReadSettings(settings, "--settings", request));
    return request;
  }
  if (options.recompute == "selective") {
    request.recompute = Recompute::kSelective;
  } else if (options.recompute == "full") {
    request.recompute = Recompute::kFull;
  } else if (options.recompute != "none") {
    return InvalidInput(StrCat("--recompute: found '", options.recompute, "', expected none, selective or full"));
  }
  if (options.attention != "flash" && options.attention != "stored") {
    return InvalidInput(StrCat("--attention: found '", options.attention, "', expected flash or stored"));
  }
  request.attention = options.attention == "flash" ? AttentionKernel::kFlash : AttentionKernel::kStored;
  ASSIGN_OR_RETURN(request.precision, ReadPrecision(options.precision));
  request.sequence_parallel = !options.whole_rows;
  return request;
}

std::string Number(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// Prints a row for each layout, in 80 columns unless MoE layers run as something long. ESP has a column where some
// layout shards experts.
void PrintAnswer(const LayoutAnswer& answer) {
  const auto any = [&](auto is) { return std::ranges::any_of(answer.layouts, is); };
  const bool shards = any([](const RankedLayout& ranked) { return ranked.layout.expert_sharding_parallel > 1; });
  std::vector<std::vector<std::string>> rows = {
      {"TP", "EP", "CP", "PP", "DP", "micro", "step", "tokens/s", "MFU %", "GB", "MoE layer"}};
  for (const RankedLayout& ranked : answer.layouts) {
    const Layout& layout = ranked.layout;
    const bool moe = ranked.moe_layer_s > 0;
    rows.push_back(
        {StrCat(layout.tensor_parallel), StrCat(layout.expert_parallel),
         StrCat(layout.context_parallel, ranked.horizontal_contexts ? "h" : ""), StrCat(layout.pipeline_parallel),
         StrCat(layout.data_parallel), StrCat(ranked.micro_batch), Duration(ranked.step_time_s),
         Number("%.3g", ranked.tokens_per_s), ranked.mfu > 0 ? Number("%.1f", 100 * ranked.mfu) : "-",
         Number("%.1f", ranked.memory.total_bytes() / 1e9),
         moe ? StrCat(ranked.lancet ? "LANCET over " : "", Name(ranked.moe.family), " ", Duration(ranked.moe_layer_s))
             : ""});
  }
  for (size_t i = 0; shards && i < rows.size(); ++i) {
    rows[i].insert(rows[i].begin() + 2, i == 0 ? "ESP" : StrCat(answer.layouts[i - 1].layout.expert_sharding_parallel));
  }
  std::fputs(Table(rows).c_str(), stdout);
  if (any([](const RankedLayout& ranked) { return ranked.horizontal_contexts; })) {
    std::printf("h: contexts lie across the ranks of the experts (horizontal)\n");
  }
  std::printf("\n%d layouts and micro-batches, %d fit, %d priced\n", answer.enumerated, answer.fitting, answer.priced);
  PrintWarnings(answer.warnings);
}

Status CheckFeasible(const LayoutCommandOptions& options, const LayoutAnswer& answer) {
  if (!answer.layouts.empty()) return OkStatus();
  return Infeasible(StrCat(options.model, ": none of ", answer.enumerated, " layouts fits: the smallest needs ",
                           BriefNumber(answer.least_missing_bytes),
                           " bytes more than cluster.deviceMemoryBytes; raise --gpus or --zero, or ask for --recompute "
                           "full"));
}

Status Run(const LayoutCommandOptions& options) {
  ASSIGN_OR_RETURN(LayoutRequest request, RequestOf(options));
  ASSIGN_OR_RETURN(const Profile profile, options.source.LoadProfileOfJob(request.model, request.gpus));
  ASSIGN_OR_RETURN(LayoutAnswer answer, planner::RankLayouts(request, profile, {.threads = DefaultThreads()}));
  if (options.lancet) RETURN_IF_ERROR(planner::TryLancet(request, profile, DefaultThreads(), answer));
  if (options.json) {
    PrintJson(ToProto(answer, request));
  } else {
    PrintAnswer(answer);
  }
  return CheckFeasible(options, answer);
}

}  // namespace

void AddLayout(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<LayoutCommandOptions>();
  LayoutRequest& request = options->request;
  CLI::App* command = AddCommand(app, invocation, "layout", "Rank the layouts of a model over a number of GPUs",
                                 "moeplan layout --db moeplan.db --model config.json --gpus 1024 --global-batch 2048 "
                                 "--sequence-length 4096 --zero 1",
                                 [options] { return Run(*options); });
  options->source.AddWithHardware(*command);
  command->add_option("--model", options->model, "config.json of a Hugging Face model, or the name of one that ships")
      ->required();
  command->add_option("--gpus", request.gpus, "How many GPUs, in nodes such as the profile's (default: the source's)");
  command->add_option("--global-batch", request.global_batch, "Samples of a training step")->required();
  command->add_option("--sequence-length", request.sequence_length, "Tokens of a sample")->required();
  CLI::Option* const settings =
      command->add_option("--settings", options->settings,
                          "JSON, or its file: how a step runs, as step's --layout says it beside degrees "
                          "(dispatcher, overlapExpertParallel, recomputeModules, ...)");
  command->add_option("--zero", request.zero_stage, "Stage of ZeRO, 0 to 3")->capture_default_str();
  command->add_option("--recompute", options->recompute, "none, selective (attention scores) or full")
      ->capture_default_str();
  command->add_option("--recompute-layers", request.recompute_layers,
                      "With --recompute full: how many layers of each virtual stage, the first (0: all)");
  command->add_option("--recompute-chunk", request.recompute_chunk,
                      "With --recompute full of all: how many layers in a row keep one input");
  command->add_option("--precision", options->precision, "Of products but the last: bf16, fp8, mxfp8 or nvfp4")
      ->capture_default_str();
  command->add_option("--virtual-stages", request.virtual_stages, "Of each rank of a pipeline, interleaved")
      ->capture_default_str();
  command->add_option("--mtp-layers", request.next_tokens, "Layers that predict further tokens, on the last stage")
      ->capture_default_str();
  command->add_flag("--overlap-tensor-parallel", request.overlaps_tensor,
                    "Products hide exchanges over tensor-parallel ranks, but for the first piece");
  command
      ->add_option("--attention", options->attention,
                   "What attention keeps of its scores: flash (nothing) or stored (all)")
      ->capture_default_str();
  command->add_flag("--no-sequence-parallel", options->whole_rows,
                    "Tensor-parallel ranks keep whole rows and all-reduce them");
  command->add_option("--capacity-factor", request.capacity_factor, "Slots of an expert over an even share")
      ->capture_default_str();
  // Each says what the settings say.
  for (const char* option :
       {"--zero", "--recompute", "--recompute-layers", "--recompute-chunk", "--precision", "--virtual-stages",
        "--mtp-layers", "--overlap-tensor-parallel", "--attention", "--no-sequence-parallel", "--capacity-factor"}) {
    command->get_option(option)->excludes(settings);
  }
  command
      ->add_option("--network-scale", request.max_network_scale,
                   "Ranks that the network joins at full rate (0: all): limits horizontal context parallelism")
      ->capture_default_str();
  command->add_flag("--lancet", options->lancet,
                    "Price the layouts that are listed under Lancet's passes, too, which takes tens of milliseconds "
                    "each; a row is that of the faster");
  command->add_option("--top", request.top, "How many layouts to print")->capture_default_str();
  command->add_flag("--json", options->json, "Print the whole answer as JSON");
}

}  // namespace moeplan::cli
