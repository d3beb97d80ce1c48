#include "planner/targets/layout_fields.h"

#include <algorithm>
#include <iterator>

namespace moeplan::planner {

using Json = nlohmann::json;

std::span<const LayoutField> LayoutFields() {
  // Fields that decide whether others are said come first.
  static const LayoutField kFields[] = {
      {"tensorParallel", 1, "ranks that share a dense layer"},
      {"expertParallel", 1, "ranks over which experts are spread"},
      {"expertShardingParallel", 1, "ranks that share one expert"},
      {"contextParallel", 1, "ranks that share a sample's tokens"},
      {"pipelineParallel", 1, "pipeline stages"},
      {"dataParallel", nullptr, "replicas of the dense layers", "False"},
      {"microBatch", 1, "samples of a micro-batch"},
      {"stages", Json::array(), "layers of each virtual stage", "pipelineParallel > 1"},
      {"virtualStages", 1, "virtual stages of a rank", "pipelineParallel > 1"},
      {"recompute", "NONE", "what is computed again"},
      {"zeroStage", 1, "the stage of ZeRO"},
      {"sequenceParallel", true, "rows cut over tensor-parallel ranks", "tensorParallel > 1"},
      {"attention", "FLASH", "what attention keeps"},
      {"contextExchange", "KEYS_VALUES", "how contexts exchange", "contextParallel > 1"},
      {"dispatcher", "ALL_TO_ALL", "how rows are dispatched", "given.experts != 0"},
      {"transport", "NCCL", "what a dispatcher's messages travel by", "dispatcher in ['DEEPEP', 'HYBRID_EP']"},
      {"overlapExpertParallel", false, "exchanges of experts beside another micro-batch"},
      {"delayWeightGradients", false, "weight gradients that wait for these exchanges", "overlapExpertParallel"},
      {"schedule", "UNSPECIFIED", "how MoE layers run", "expertParallel > 1 or expertShardingParallel > 1"},
      {"plan", nullptr, "the knobs of that schedule", "False"},
      {"chunks", 1, "chunks of a MoE layer"},
      {"partitionDegree", 1, "partitions of a MoE layer"},
      {"allToAll", "DIRECT", "the algorithm of all-to-alls", "expertParallel > 1"},
      {"precision", "BF16", "what products are computed in"},
      {"capacityFactor", 0, "slots of an expert over an even share"},
      {"overlapGradients", true, "gradients summed beside the backward pass"},
      {"overlapSharedExperts", true, "shared experts beside the exchange of the others",
       "given.shared_hidden_dim != None"},
      {"recomputeLayers", 0, "layers of each virtual stage that are computed again", "recompute == 'FULL'"},
      {"recomputeChunk", 1, "layers that keep one input and are computed again together",
       "recompute == 'FULL' and recomputeLayers == 0"},
      {"overlapTensorParallel", false, "exchanges of tensor parallelism beside products"},
      {"mtpLayers", 0, "layers that predict further tokens"},
      {"expertImbalance", 0, "rows of the busiest rank"},
      {"recomputeModules", Json::array(), "parts of layers that are computed again", "recompute == 'SELECTIVE'"},
      {"gradientPrecision", "FP32", "what gradients are summed in"},
      {"horizontalContexts", nullptr, "contexts across the experts' ranks", "contextParallel > 1"},
  };
  return kFields;
}

const Json* DefaultOf(std::string_view field) {
  const auto fields = LayoutFields();
  const auto found = std::ranges::find(fields, field, &LayoutField::name);
  return found == fields.end() ? nullptr : &found->default_value;
}

}  // namespace moeplan::planner
