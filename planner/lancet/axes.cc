#include "planner/lancet/axes.h"

#include "models/plan/part_shares.h"

namespace moeplan::planner {
namespace {

// Outside a range an output is irregular by what makes it.
bool MakesIrregular(InstructionOp op) { return HasUnevenParts(op) || op == InstructionOp::kDispatch; }

// Whether an instruction reads nothing that the graph makes: it gathers weights, as whole as a tensor without producer.
bool GathersWeights(const TimedInstruction& one) {
  return one.op == InstructionOp::kAllGather && one.producers.empty();
}

}  // namespace

void RangeAxes::Start(int first) {
  first_ = next_ = first;
  along_capacity_ = along_samples_ = true;
}

bool RangeAxes::Extend() {
  const int i = next_++;
  along_capacity_ = along_capacity_ && HasUnevenParts(graph_.instructions[i].op);
  along_samples_ = along_samples_ && CarriesOn(i);
  return along_capacity_ || along_samples_;
}

bool RangeAxes::CarriesOn(int i) {
  const TimedInstruction& one = graph_.instructions[i];
  int along_samples = 0, irregular = 0;
  for (const int producer : one.producers) {
    if (GathersWeights(graph_.instructions[producer])) continue;
    const bool outside = producer < first_;
    if (outside && MakesIrregular(graph_.instructions[producer].op)) return false;
    ++(!outside && irregular_[producer] ? irregular : along_samples);
  }
  irregular_[i] = MakesIrregular(one.op);
  switch (one.op) {
    case InstructionOp::kGate:
      if (one.whole_batch_gate) return false;
      [[fallthrough]];
    case InstructionOp::kMatmul:
    case InstructionOp::kElementwise:
    case InstructionOp::kLayerNorm:
    case InstructionOp::kSoftmax:
    case InstructionOp::kAttention:
    case InstructionOp::kDispatch:
    case InstructionOp::kAllGather:
    case InstructionOp::kReduceScatter:
    case InstructionOp::kAllReduce:
    case InstructionOp::kHeadExchange:
    case InstructionOp::kSend: return along_samples > 0 && irregular == 0;
    case InstructionOp::kAllToAll:
    case InstructionOp::kExpert: return irregular > 0 && along_samples == 0;
    case InstructionOp::kCombine: return irregular > 0;
    case InstructionOp::kOther: return false;
  }
  return false;
}

}  // namespace moeplan::planner
