#include "models/workload/names.h"

namespace moeplan {

std::string_view Name(GateKind gate) {
  switch (gate) {
    case GateKind::kTopK: return "TOP_K";
    case GateKind::kSwitch: return "SWITCH";
    case GateKind::kBatchPrioritized: return "BATCH_PRIORITIZED";
    case GateKind::kExpertChoice: return "EXPERT_CHOICE";
    case GateKind::kRandom: return "RANDOM";
    case GateKind::kHash: return "HASH";
  }
  return "?";
}

std::string_view Name(ScoreFunction function) {
  switch (function) {
    case ScoreFunction::kSoftmax: return "SOFTMAX";
    case ScoreFunction::kSigmoid: return "SIGMOID";
  }
  return "?";
}

std::string_view Name(Phase phase) {
  switch (phase) {
    case Phase::kForward: return "FORWARD";
    case Phase::kBackward: return "BACKWARD";
    case Phase::kTraining: return "TRAINING";
  }
  return "?";
}

std::string_view Name(CapacityPassing passing) {
  switch (passing) {
    case CapacityPassing::kExact: return "EXACT";
    case CapacityPassing::kPadded: return "PADDED";
  }
  return "?";
}

}  // namespace moeplan
