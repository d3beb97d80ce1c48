#include "planner/advice/layout_words.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <string_view>

#include "models/text.h"

namespace moeplan::planner {
namespace {

std::string RecomputeText(const LayoutRequest& request) {
  if (request.recompute == Recompute::kNone) return "nothing computed again";
  if (request.recompute == Recompute::kFull) {
    if (request.recompute_layers > 0) return StrCat("recompute FULL of ", request.recompute_layers, " layers");
    return request.recompute_chunk > 1 ? StrCat("recompute FULL, ", request.recompute_chunk, " layers at a time")
                                       : "recompute FULL";
  }
  std::string modules;
  for (int i = 0; i < kRecomputeModules; ++i) {
    const auto module = static_cast<RecomputeModule>(i);
    if (request.recompute_modules.Has(module)) modules += StrCat(modules.empty() ? "" : "+", Name(module));
  }
  return StrCat("recompute ", modules.empty() ? "CORE_ATTN" : modules);
}

std::string OverlapText(const LayoutRequest& request) {
  if (!request.overlaps_experts) return "exchanges beside no other micro-batch";
  return StrCat("exchanges of experts beside another micro-batch",
                request.delays_weight_gradients ? ", weight gradients delayed" : "");
}

std::string PipelineText(const StepQuestion& question) {
  const int stages = question.request.virtual_stages;
  return StrCat("pipelineParallel ", question.layout.pipeline_parallel,
                stages > 1 ? StrCat(" with ", stages, " virtual stages") : "");
}

std::string DispatcherText(const StepQuestion& question) {
  const Transport transport = question.request.transport;
  return StrCat("dispatcher ", Name(question.request.dispatcher),
                transport == Transport::kNccl ? "" : StrCat(" over ", Name(transport)));
}

std::string ContextsText(const StepQuestion& question) {
  return StrCat("contextParallel ", question.layout.context_parallel,
                question.horizontal_contexts.value_or(false) ? " across the experts' ranks" : "");
}

// What one decision is about: its words, and how it is taken from another layout.
struct Knob {
  std::function<std::string(const StepQuestion&)> text;
  std::function<void(const StepQuestion& from, StepQuestion& to)> copy;
};

Knob Degree(const char* name, int Layout::*degree) {
  return {[=](const StepQuestion& question) { return StrCat(name, " ", question.layout.*degree); },
          [=](const StepQuestion& from, StepQuestion& to) { to.layout.*degree = from.layout.*degree; }};
}

std::vector<Knob> KnobsOf(const ModelConfig& model) {
  std::vector<Knob> knobs;
  if (model.moe_layers() > 0) {
    knobs.push_back({DispatcherText, [](const StepQuestion& from, StepQuestion& to) {
                       to.request.dispatcher = from.request.dispatcher;
                       to.request.transport = from.request.transport;
                     }});
    knobs.push_back({[](const StepQuestion& question) { return OverlapText(question.request); },
                     [](const StepQuestion& from, StepQuestion& to) {
                       to.request.overlaps_experts = from.request.overlaps_experts;
                       to.request.delays_weight_gradients = from.request.delays_weight_gradients;
                       to.request.overlaps_shared_experts = from.request.overlaps_shared_experts;
                     }});
    knobs.push_back(Degree("expertParallel", &Layout::expert_parallel));
    knobs.push_back(Degree("expertShardingParallel", &Layout::expert_sharding_parallel));
  }
  knobs.push_back(Degree("tensorParallel", &Layout::tensor_parallel));
  knobs.push_back({ContextsText, [](const StepQuestion& from, StepQuestion& to) {
                     to.layout.context_parallel = from.layout.context_parallel;
                     to.horizontal_contexts = from.horizontal_contexts.value_or(false);
                   }});
  knobs.push_back({PipelineText, [](const StepQuestion& from, StepQuestion& to) {
                     to.layout.pipeline_parallel = from.layout.pipeline_parallel;
                     to.request.virtual_stages = from.request.virtual_stages;
                     to.request.stages = from.request.stages;
                   }});
  knobs.push_back({[](const StepQuestion& question) { return StrCat("microBatch ", question.micro_batch); },
                   [](const StepQuestion& from, StepQuestion& to) { to.micro_batch = from.micro_batch; }});
  knobs.push_back({[](const StepQuestion& question) { return RecomputeText(question.request); },
                   [](const StepQuestion& from, StepQuestion& to) {
                     to.request.recompute = from.request.recompute;
                     to.request.recompute_modules = from.request.recompute_modules;
                     to.request.recompute_layers = from.request.recompute_layers;
                     to.request.recompute_chunk = from.request.recompute_chunk;
                   }});
  return knobs;
}

// Whatever fills the GPUs, by whatever schedule goes with the layout.
StepQuestion Opened(StepQuestion question) {
  question.layout.data_parallel = 0;
  question.schedule.reset(), question.chunks.reset(), question.partition_degree.reset();
  question.lancet = false;
  return question;
}

StepQuestion Halved(const StepQuestion& question) {
  StepQuestion halved = question;
  for (int Layout::*degree :
       {&Layout::tensor_parallel, &Layout::expert_parallel, &Layout::context_parallel, &Layout::pipeline_parallel}) {
    halved.layout.*degree = std::max(1, halved.layout.*degree / 2);
  }
  halved.horizontal_contexts = false;
  halved.micro_batch = std::max(1, halved.micro_batch / 2);
  halved.request.dispatcher = Dispatcher::kAllToAll;
  halved.request.transport = Transport::kNccl;
  halved.request.overlaps_experts = halved.request.delays_weight_gradients = false;
  halved.request.recompute = Recompute::kNone;
  halved.request.recompute_modules = {};
  halved.request.recompute_layers = 0;
  halved.request.recompute_chunk = 1;
  return halved;
}

// What a part is called in a sentence.
std::string_view WordsOf(std::string_view part) {
  static const std::map<std::string_view, std::string_view> kWords = {
      {"attention", "attention"},
      {"denseNetworks", "dense networks"},
      {"moeLayers", "MoE layers"},
      {"sharedExperts", "shared experts"},
      {"elementwise", "element-wise kernels"},
      {"logits", "the last product"},
      {"loss", "the loss"},
      {"tensorExchange", "exchanges of tensor parallelism"},
      {"contextExchange", "exchanges of context parallelism"},
      {"pipelineExchange", "exchanges between stages"},
      {"weights", "gathering weights"},
      {"gradients", "summing gradients"},
      {"optimizer", "the optimizer"},
      {"hostLaunches", "launches by the host"},
      {"bubble", "the pipeline's bubble"}};
  const auto found = kWords.find(part);
  return found == kWords.end() ? part : found->second;
}

std::string Seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds < 1 ? "%.3g ms" : "%.3g s", seconds < 1 ? seconds * 1e3 : seconds);
  return text;
}

}  // namespace

std::string LayoutText(const StepQuestion& question) {
  const LayoutRequest& request = question.request;
  const Layout& layout = question.layout;
  std::string text = StrCat("TP ", layout.tensor_parallel);
  if (request.model.moe_layers() > 0) text += StrCat(", EP ", layout.expert_parallel);
  if (layout.expert_sharding_parallel > 1) text += StrCat(", ESP ", layout.expert_sharding_parallel);
  if (layout.context_parallel > 1) {
    text +=
        StrCat(", CP ", layout.context_parallel, question.horizontal_contexts.value_or(false) ? " (horizontal)" : "");
  }
  text += StrCat(", PP ", layout.pipeline_parallel);
  if (request.virtual_stages > 1) text += StrCat(" with ", request.virtual_stages, " virtual stages");
  if (layout.data_parallel > 0) text += StrCat(", DP ", layout.data_parallel);
  text += StrCat(", micro-batch ", question.micro_batch);
  if (request.model.moe_layers() > 0) {
    text += StrCat(", ", DispatcherText(question));
    if (request.overlaps_experts) text += StrCat(", ", OverlapText(request));
  }
  if (request.recompute != Recompute::kNone) text += StrCat(", ", RecomputeText(request));
  return text;
}

std::vector<Decision> DecisionsBetween(const StepQuestion& one, const StepQuestion& other) {
  std::vector<Decision> decisions;
  for (const Knob& knob : KnobsOf(one.request.model)) {
    Decision decision = {.taken = knob.text(one), .instead = knob.text(other), .without = Opened(one)};
    if (decision.taken == decision.instead) continue;
    knob.copy(other, decision.without);
    decisions.push_back(std::move(decision));
  }
  return decisions;
}

std::vector<Decision> DecisionsOf(const StepQuestion& one, const StepQuestion& other) {
  std::vector<Decision> decisions = DecisionsBetween(one, other);
  for (Decision& further : DecisionsBetween(one, Halved(one))) {
    const bool known =
        std::ranges::any_of(decisions, [&](const Decision& decision) { return decision.taken == further.taken; });
    if (!known) decisions.push_back(std::move(further));
  }
  return decisions;
}

std::string RatioText(const StepRatio& ratio) {
  char text[96];
  std::snprintf(text, sizeof text, "%.2f times as long (90 %%: %.2f to %.2f)", ratio.ratio, ratio.low, ratio.high);
  return text;
}

std::string WhereText(const StepAnswer& one, const StepAnswer& other) {
  constexpr double kMost = 0.4;  // Of the difference, that a part must make.
  const double difference_s = other.layout.step_time_s - one.layout.step_time_s;
  std::map<std::string, double> before;
  for (const StepPartTime& part : one.parts) before[part.part] = part.exposed_s;
  const StepPartTime* most = nullptr;
  for (const StepPartTime& part : other.parts) {
    const double more_s = part.exposed_s - before[part.part];
    if (more_s < kMost * difference_s) continue;
    if (most == nullptr || more_s > most->exposed_s - before[most->part]) most = &part;
  }
  if (most == nullptr || difference_s <= 0) return "";
  return StrCat(", mostly in ", WordsOf(most->part), " (", Seconds(most->exposed_s), " instead of ",
                Seconds(before[most->part]), ")");
}

}  // namespace moeplan::planner
