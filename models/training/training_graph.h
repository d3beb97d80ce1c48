// A training step as a list of instructions, as GRAPH.json has it (contract, "Training graph"): what Lancet's passes
// read (Lancet §4), and what is run once it is made of tasks (models/plan/step_tasks.h).
//
// Seconds, bytes and flops. Values only; a graph is trustworthy once ValidateTrainingGraph has passed it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/cost/operation.h"
#include "models/schedule/task_graph.h"
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
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kSend,
  kHeadExchange,
};
// The name of the contract, such as "LAYER_NORM".
std::string_view Name(InstructionOp op);

// The collective of an instruction that exchanges; absent for one that computes. A kSend is an all-to-all of two ranks
// (models/cost/send.h), and a kHeadExchange one that trades tokens for heads between contexts (DeepSpeed-Ulysses).
std::optional<Collective> CollectiveOf(InstructionOp op);

// So much of one operation: bytes, flops or launches, as its key counts them (UnitOf).
struct Work {
  CostKey key;
  double size = 0;

  friend bool operator==(const Work&, const Work&) = default;
};

struct Instruction {
  std::string id;
  InstructionOp op = InstructionOp::kOther;
  Pass phase = Pass::kForward;
  std::optional<double> time_s;      // Uncut.
  std::vector<double> part_times_s;  // One part of k = 1, 2, ...
  std::vector<std::string> inputs, outputs;
  std::string forward;  // Of a backward instruction that is cut where this forward one is: its id.
  std::string layer;    // The MoE layer of a forward instruction that is cut with all others of it, or not at all.
  bool weight_gradient = false;
  GateKind gate = GateKind::kTopK;  // Of a kGate.
  std::optional<double> bytes;      // Of a collective, and the next two; of a kSend what it sends.
  std::optional<int> group_size;
  std::optional<int> ranks_per_node;
  std::optional<double> counts_bytes;  // Of a kAllToAll: what goes ahead of a part whose rows are not even.
  std::optional<StreamKind> stream;    // Absent: see StreamOf.
  std::vector<Work> work;              // What an instruction that computes does, kernel after kernel.
  std::vector<double> output_bytes;    // Of each of `outputs`, or empty: what putting their parts together moves.

  friend bool operator==(const Instruction&, const Instruction&) = default;
};

// How long the step took where its times were measured.
struct MeasuredStep {
  int parts = 1;            // The range was cut in so many, both ways; 1: nothing was cut.
  std::string first, last;  // The range: ids. Empty where nothing was cut.
  double time_s = 0;

  friend bool operator==(const MeasuredStep&, const MeasuredStep&) = default;
};

struct TrainingGraph {
  std::vector<Instruction> instructions;  // In the given order.
  int max_parts = 8;                      // Lancet's ρ (K).
  double group_s = 0;                     // γ; 0: each instruction by itself.
  double max_range_s = 0;                 // ι; 0: no limit.
  // The MoE layers', whose shapes GATE, PERMUTE and products of experts take where the graph is run.
  std::optional<Workload> workload;
  std::optional<double> most_bytes;  // That outputs may take at a time; absent: no limit.
  // The step as it is first, then in 2 and more parts, ascending; or empty (planner/lancet/parts_as_run.h).
  std::vector<MeasuredStep> measured_steps;

  friend bool operator==(const TrainingGraph&, const TrainingGraph&) = default;
};

// Larger graphs are refused.
inline constexpr int kMostInstructions = 10000;
inline constexpr int kMostTensors = 200000;  // Inputs and outputs of all instructions together.
inline constexpr int kMostParts = 64;
inline constexpr size_t kMostMeasuredSteps = 8;
inline constexpr size_t kMostKernels = 64;  // Of one instruction.
inline constexpr double kMostWork = 1e18;   // Bytes or flops of one kernel.
inline constexpr double kLongestS = 1e9;    // Of one instruction.
inline constexpr size_t kLongestName = 256;

// The stream an instruction runs on: where it says none, all-to-alls are between nodes, messages to other stages on
// kCopy, other collectives inside nodes, and what computes is on the compute stream. The names are those of task
// graphs; on each stream one instruction runs after the other.
StreamKind StreamOf(const Instruction& one);

// The size of one of `parts` parts of a collective, as nccl-tests counts that under which it is priced and run; 0 where
// the graph does not say.
double CollectiveBytes(const Instruction& one, int parts = 1);

// The key and size under which a collective cut in `parts` is priced and run. Requires its bytes and group.
Work CollectiveWork(const Instruction& one, int parts = 1);

// OK, or kInvalidInput naming the instruction by place and id: an id that is empty, too long, given twice or reads as
// a part of another ("x#1" beside "x"); a tensor without a name or with two producers; an instruction that reads what
// only later ones produce (or what depends on itself: a cycle); a number that is not finite, negative or out of range;
// a compute instruction without a time; a weight gradient that is a collective; a kSend that is not between two ranks;
// a stream, work, sizes of outputs, forward instruction or layer that the instruction cannot have; measured steps that
// are none of the graph's.
Status ValidateTrainingGraph(const TrainingGraph& graph);

// The producers of what each instruction reads, ascending, each once. Requires a validated graph.
std::vector<std::vector<int>> ProducersOf(const TrainingGraph& graph);

// The place of the forward instruction that each is the way back of; -1 where it is of none. Requires a validated
// graph.
std::vector<int> ForwardsOf(const TrainingGraph& graph);

// Whether each instruction stands between others of one layer (Instruction::layer): no range begins there.
std::vector<bool> InsideLayers(const TrainingGraph& graph);

// The most parts that an instruction is ever cut in: ranges are of the forward pass, and of its way back.
int MostPartsOf(const Instruction& one, int max_parts);

}  // namespace moeplan
