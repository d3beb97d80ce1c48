// The gate on the CPU: scores a batch, lets tokens or experts choose, hands out slots and keeps the statistics.
// What it promises is in executor/kernels.h; it runs where and when it is called.
#pragma once

#include <vector>

#include "executor/kernels.h"

namespace moeplan::executor {

class HostGate {
 public:
  // The memory of `weights` outlives the gate.
  HostGate(const Layer& layer, const GateWeights& weights);

  void UseWeights(const GateWeights& weights) { weights_ = weights; }
  void Route(const GateArgs& args);
  void AssignSlots(const AssignSlotsArgs& args);

 private:
  void ScoreBlock(const GateArgs& args, int block);
  void ScoreRow(const GateArgs& args, int block, int index);
  void LetPairsTakeSlots(const GateArgs& args, int block);
  void LetExpertsTakeTokens(const GateArgs& args, int block);
  // The tokens of a block in the order in which they take slots.
  void SortByPriority(int tokens);
  void WriteSums(const GateArgs& args) const;

  size_t PairIndex(int row, int choice) const { return static_cast<size_t>(row) * width_ + choice; }
  std::span<float> ScoresOf(int index);

  const Layer layer_;
  GateWeights weights_;
  const int width_;

  // Scratch of a block, kept between runs.
  std::vector<float> token_, logits_, keys_;
  std::vector<float> scores_;    // Of every token where experts choose, else of one.
  std::vector<float> priority_;  // By token: its largest probability.
  std::vector<int> order_;
  std::vector<int32_t> pairs_, kept_;  // By expert.
  struct Sums {
    double squared_log_sum_exp = 0, entropy = 0;
    std::vector<double> probability;
  } sums_;
};

}  // namespace moeplan::executor
