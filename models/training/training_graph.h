// A training step as a list of instructions, as GRAPH.json has it (contract, "Training graph"): what Lancet's passes
// read (Lancet §4).
//
// Seconds and bytes. Values only; a graph is trustworthy once ValidateTrainingGraph has passed it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/status.h"
#include "models/workload/workload.h"

namespace moeplan {

// What an instruction does, which decides the axis along which it can be cut.
enum class InstructionOp {
  kMatmul,
  kElementwise,
  kLayerNorm,
  kSoftmax,
  kAttention,
  kGate,
  kDispatch,
  kAllToAll,
  kExpert,
  kCombine,
  kOther,
};
// The name of the contract, such as "LAYER_NORM".
std::string_view Name(InstructionOp op);

struct Instruction {
  std::string id;
  InstructionOp op = InstructionOp::kOther;
  Pass phase = Pass::kForward;
  std::optional<double> time_s;      // Uncut.
  std::vector<double> part_times_s;  // One part of k = 1, 2, ...
  std::vector<std::string> inputs, outputs;
  bool weight_gradient = false;
  GateKind gate = GateKind::kTopK;  // Of a kGate.
  std::optional<double> bytes;      // Of a kAllToAll, and the next two.
  std::optional<int> group_size;
  std::optional<int> ranks_per_node;

  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct TrainingGraph {
  std::vector<Instruction> instructions;  // In the given order.
  int max_parts = 8;                      // Lancet's ρ (K).
  double group_s = 0;                     // γ; 0: each instruction by itself.
  double max_range_s = 0;                 // ι; 0: no limit.

  friend bool operator==(const TrainingGraph&, const TrainingGraph&) = default;
};

// Larger graphs are refused.
inline constexpr int kMostInstructions = 10000;
inline constexpr int kMostTensors = 200000;  // Inputs and outputs of all instructions together.
inline constexpr int kMostParts = 64;
inline constexpr double kLongestS = 1e9;  // Of one instruction.
inline constexpr size_t kLongestName = 256;

// OK, or kInvalidInput naming the instruction by place and id: an id that is empty, too long, given twice or reads as
// a part of another ("x#1" beside "x"); a tensor without a name or with two producers; an instruction that reads what
// only later ones produce (or what depends on itself: a cycle); a number that is not finite, negative or out of range;
// a compute instruction without a time; a weight gradient that is an all-to-all.
Status ValidateTrainingGraph(const TrainingGraph& graph);

// Of each instruction those that produce what it reads, ascending, each once. Requires a validated graph.
std::vector<std::vector<int>> ProducersOf(const TrainingGraph& graph);

}  // namespace moeplan
