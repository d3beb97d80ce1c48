// The instructions of a transformer on one rank, layer by layer, as planner/lancet/model_graph.h lists them, written on
// a tape. Each does what models/step/layer_work.h counts, which `layout` and `step` price, too. Pure.
#pragma once

#include <vector>

#include "models/layout/layout_answer.h"
#include "models/training/training_graph.h"
#include "planner/lancet/graph/tape.h"
#include "planner/layout/layout_space.h"

namespace moeplan::planner {

// A run of a model's layers, which is what a virtual stage of a pipeline has.
struct LayerRun {
  int first = 0, count = 0;
  bool embeds = true;    // The embedding is in front of it; else rows come from the stage before.
  bool predicts = true;  // The head and the loss are behind it; else gradients come from the stage after.
};

// The instruction of the forward pass behind which the backward pass begins: the loss, or the stage after.
const char* LastOfForward(const LayerRun& run);

struct Transformer {
  LayoutRequest request;  // The model, and what is kept, computed again and predicted.
  LayoutPoint point;
  int gpus_per_node = 1;
  GroupShape expert_group;  // Ranks that exchange rows of experts.
};

// The run's way there and back. The optimizer's step follows where the tape is of a whole step.
std::vector<Instruction> InstructionsOf(const Transformer& transformer, const LayerRun& run, Tape tape);

}  // namespace moeplan::planner
