// Writes the instructions of a forward pass down, then walks back over them: the gradient of each input, right behind
// it that of the weights, sums of gradients over their replicas, the optimizer's step, and what is computed or gathered
// again on the way (planner/lancet/model_graph.h says how these run). Seconds, bytes. A Tape is for one thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/plan/part_shares.h"
#include "models/training/training_graph.h"
#include "planner/lancet/graph/step_costs.h"

namespace moeplan::planner {

using Tensors = std::vector<std::string>;

// Says how an instruction of the forward pass is computed again in the backward pass, because its work, or this part of
// it, is not kept.
struct Recomputed {
  StepWork work;
  InstructionOp op = InstructionOp::kOther;
  // Instructions with the same number are computed again together, when the way back reaches the last of them, whose
  // outputs are kept. They follow each other.
  int group = 0;
  // The outputs are not kept either: what reads them on the way back computes them again. Its group is its own.
  bool is_output = false;
};

// One instruction of the forward pass, and what its way back needs.
struct Step {
  std::string id;
  InstructionOp op = InstructionOp::kOther;
  Tensors activations;
  StepWork work;
  std::vector<double> output_bytes;
  bool weights = false;
  double parameters = 0;               // Of a rank; 0 where it has another instruction's weights.
  std::optional<Exchange> weight_sum;  // Sums the weights' gradient, where each rank has a part of its terms.
  std::optional<Recomputed> again;
  std::string weights_of;  // The id of the instruction that counts the same weights; empty: they are its own.
};

// Says whether a graph is a step of a whole model, or one micro-batch of it as GraphOfRun says.
enum class Counts { kStep, kMicroBatch };

// Ranks that have the same weights, and how far apart they are in rank order; 0: not told.
struct Replicas {
  GroupShape group;
  int stride = 0;
};

struct TapeOptions {
  Counts counts = Counts::kStep;
  GateKind gate = GateKind::kTopK;
  int max_parts = 8;
  int zero_stage = 1;
  int bytes_per_element = 2, gradient_bytes = 4;
  Replicas dense, experts;
  // Whether other collectives are on the stream where sums of gradients are otherwise, and something waits for them.
  bool replicas_have_own_stream = false;
};

class Tape {
 public:
  // `costs` is borrowed.
  Tape(const TapeOptions& options, StepCosts& costs);

  // Begins a part of the model, which reaches up to the next one; with ZeRO-3 its weights are gathered together.
  void StartPart(const std::string& name);
  // Returns the step's first output.
  std::string Add(Step step);
  static std::string OutputOf(const Step& step, size_t i);
  std::vector<Instruction> Finish();

 private:
  void FinishBack();
  // Weights that the ranks of a group have alike: how many there are on each, and gradients that wait to be summed.
  struct Gradients {
    std::string prefix;
    Replicas replicas;
    double parameters = 0;
    Tensors bucket;
    double bucket_bytes = 0;
    int sums = 0;
  };
  // Describes one all-gather of weights of a part of the model.
  struct Gather {
    std::string id;
    const Gradients* of = nullptr;
    double parameters = 0;
    Tensors weights;
    std::vector<double> weight_bytes;  // Of each.
  };
  struct Part {
    std::string name;  // In front of its instructions' names.
    size_t first_step = 0, first_instruction = 0;
    std::vector<Gather> gathers;
  };
  // Describes rows that were exchanged and not kept.
  struct GatheredRows {
    size_t step = 0;   // The step that exchanged them.
    std::string back;  // The tensor on the way back, once it is there.
  };

  bool CutsWeights() const { return options_.zero_stage == kMaxZeroStage; }
  bool CutsOptimizer() const { return options_.zero_stage > 0; }
  Gradients& GradientsOf(const Step& step) { return step.op == InstructionOp::kExpert ? experts_ : dense_; }

  void AddForward(const Step& step);
  void SetTimes(const StepWork& work, Side side, Instruction& one);
  double GradientBytes(const Step& step, const std::string& activation) const;
  // `share_s` returns the time of a share of the work. Parts of what exchanges rows are along samples, as
  // models/plan/part_shares.h has them.
  template <typename ShareS>
  void SetPartTimes(ShareS share_s, Instruction& one) const {
    const bool uneven = HasUnevenParts(one.op);
    for (int k = 1; k <= options_.max_parts; ++k) {
      one.part_times_s.push_back(k == 1 ? *one.time_s : share_s(uneven ? costs_.rows().ShareOfWhole(k) : 1.0 / k));
    }
  }

  static std::string WeightsOf(const Step& step) {
    return (step.weights_of.empty() ? step.id : step.weights_of) + ".w";
  }
  // Weights as the backward pass reads them: with ZeRO-3 those that were gathered again, but for those of another
  // instruction, which are there since the forward pass.
  std::string WeightsBack(const Step& step);
  // Returns the tensor that an instruction makes, where steps only passed it on.
  std::string Made(const std::string& tensor) const;
  Tensors Made(Tensors tensors) const;
  Tensors GradientsInto(const Step& step);

  void AddBack(const Step& step);
  // Lists what a step read on its way forward: tensors that are there, and those that are exchanged once more, which
  // begins when the gradients are there.
  void ReadBack(const Step& step, const Tensors& gradients, Tensors& kept, Tensors& again);
  // The tensor on the way back: as it was kept, or as it was computed again, which happens now if it did not yet.
  std::string Kept(const std::string& tensor, const Tensors& gradients);
  std::string Gathered(const std::string& tensor, const Tensors& gradients);
  void Recompute(int group, const Tensors& gradients);
  void RecomputeStep(const Step& step, const Tensors& gradients);
  std::string AddAgain(const Step& step, const Tensors& gradients);
  void AddWeightGradient(const Step& step, const Tensors& gradients, const Tensors& read);
  // Sums the gradient's terms over the ranks that have them; the sum then waits in the place of this rank's terms.
  void AddWeightSum(const Step& step, Gradients& of);
  // A collective of the replicas, beside what computes.
  Instruction OfReplicas(const Gradients& of, const std::string& id, InstructionOp op, double bytes, Tensors inputs);
  // Sums a bucket of gradients over its replicas: whole, or for each rank the part whose optimizer states it has.
  void AddGradientSum(Gradients& of);

  // Gathers the part's weights in front of it, with ZeRO-3. That reads nothing which the graph makes, so it runs as
  // early as its stream has time, and the weights stay whole where the part is cut.
  void EndPart();
  Instruction GatherOf(const Gather& gather);
  // Gathers the weights of the part before while this one is on its way back, and those of the last part when that way
  // begins.
  void StartPartBack(size_t part);
  void GatherAgain(const Part& part, const Tensors& begun);
  // Does so for that part and those behind it, as far as it was not done.
  void GatherBackTo(size_t part, const Tensors& begun);
  void AddOptimizer();

  const TapeOptions options_;
  StepCosts& costs_;
  std::vector<Step> steps_;
  std::vector<Part> parts_;
  std::optional<size_t> first_gathered_back_;  // The first part whose weights were gathered on the way back.
  std::vector<Instruction> instructions_;
  std::map<std::string, double> made_;  // The bytes of every tensor that the forward pass writes or passes on.
  std::map<std::string, double> gradient_bytes_;  // Gradients of tensors, where these are of other sizes.
  std::map<std::string, std::string> passed_on_;  // To a tensor that an instruction makes.
  std::map<std::string, GatheredRows> gathered_;
  std::map<std::string, int> discarded_;           // Groups of tensors that are not kept.
  std::map<int, std::vector<size_t>> groups_;      // Of steps that are computed again together; emptied once they were.
  std::map<std::string, std::string> recomputed_;  // Tensors that were computed again, and what they are called then.
  std::map<std::string, Tensors> gradients_of_;
  Gradients dense_, experts_;
  Tensors finished_;                   // What the optimizer reads.
  std::map<std::string, int> pieces_;  // Of exchanges that are cut beside products, by the instruction's id.
};

}  // namespace moeplan::planner
