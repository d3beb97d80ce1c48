#include "executor/host/host_gate.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "executor/gate_draws.h"
#include "executor/host/elements.h"
#include "executor/host/gating.h"

namespace moeplan::executor {

HostGate::HostGate(const Layer& layer, const GateWeights& weights)
    : layer_(layer),
      weights_(weights),
      width_(RoutingWidth(layer)),
      token_(layer.model_dim),
      logits_(layer.experts),
      keys_(layer.experts + layer.router.expert_groups) {}

void HostGate::Route(const GateArgs& args) {
  for (int block = 0; block < args.tokens.blocks; ++block) {
    ScoreBlock(args, block);
    if (layer_.gate == GateKind::kExpertChoice) {
      LetExpertsTakeTokens(args, block);
    } else {
      LetPairsTakeSlots(args, block);
    }
    if (block == args.own_block) WriteSums(args);
  }
}

void HostGate::ScoreBlock(const GateArgs& args, int block) {
  const size_t tokens = args.tokens.valid_rows;
  scores_.resize((layer_.gate == GateKind::kExpertChoice ? tokens : 1) * layer_.experts);
  priority_.resize(tokens);
  sums_.squared_log_sum_exp = sums_.entropy = 0;
  sums_.probability.assign(layer_.experts, 0);
  for (int index = 0; index < args.tokens.valid_rows; ++index) ScoreRow(args, block, index);
}

void HostGate::ScoreRow(const GateArgs& args, int block, int index) {
  const int row = block * args.tokens.rows_per_block + index;
  const size_t row_bytes = static_cast<size_t>(layer_.model_dim) * layer_.bytes_per_element;
  Load(args.tokens.data + row * row_bytes, ElementTypeOf(layer_.bytes_per_element), token_.size(), token_.data());
  GateLogits(token_, weights_, logits_);
  const std::span<float> scores = ScoresOf(index);
  const GateScore score = Scores(layer_, logits_, scores);
  sums_.squared_log_sum_exp += score.log_sum_exp * score.log_sum_exp;
  sums_.entropy += score.entropy;
  for (int expert = 0; expert < layer_.experts; ++expert) {
    sums_.probability[expert] += Product(scores[expert], score.probability);
  }
  priority_[index] = score.largest_probability;
  if (layer_.gate == GateKind::kExpertChoice) return;
  const size_t first = PairIndex(row, 0), width = width_;
  const int place = args.carried.FirstToken() + args.tokens.first_token + index;
  ChooseExperts(layer_, {.index = place, .row = token_, .logits = logits_, .scores = scores}, weights_.correction_bias,
                keys_, {args.routing.expert + first, width}, {args.routing.weight + first, width});
}

std::span<float> HostGate::ScoresOf(int index) {
  const size_t row = layer_.gate == GateKind::kExpertChoice ? index : 0;
  return std::span(scores_).subspan(row * layer_.experts, layer_.experts);
}

void HostGate::LetPairsTakeSlots(const GateArgs& args, int block) {
  const int tokens = args.tokens.valid_rows, first_row = block * args.tokens.rows_per_block;
  pairs_.assign(layer_.experts, 0);
  kept_.resize(layer_.experts);  // Until all have come, those that there is room for.
  for (int expert = 0; expert < layer_.experts; ++expert) {
    kept_[expert] = args.carried.RoomFor(block * layer_.experts + expert, args.capacity);
  }
  const auto take = [&](int index, int choice) {
    const size_t pair = PairIndex(first_row + index, choice);
    const int32_t expert = args.routing.expert[pair], slot = pairs_[expert]++;
    args.routing.slot[pair] = slot < kept_[expert] ? slot : -1;
  };
  if (layer_.gate == GateKind::kBatchPrioritized) {
    SortByPriority(tokens);
    for (int choice = 0; choice < width_; ++choice) {
      for (const int index : order_) take(index, choice);
    }
  } else {
    for (int index = 0; index < tokens; ++index) {
      for (int choice = 0; choice < width_; ++choice) take(index, choice);
    }
  }
  std::ranges::transform(pairs_, kept_, kept_.begin(),
                         [](int32_t pairs, int32_t room) { return std::min(pairs, room); });
  for (int expert = 0; args.carried.now != nullptr && expert < layer_.experts; ++expert) {
    const int i = block * layer_.experts + expert;
    args.carried.now[i] = args.carried.earlier[i] + pairs_[expert];
  }
}

void HostGate::SortByPriority(int tokens) {
  order_.resize(tokens);
  std::iota(order_.begin(), order_.end(), 0);
  // A stable sort would allocate.
  std::ranges::sort(order_, [this](int a, int b) {
    const uint32_t order_a = OrderOf(priority_[a]), order_b = OrderOf(priority_[b]);
    return order_a != order_b ? order_a > order_b : a < b;
  });
}

void HostGate::LetExpertsTakeTokens(const GateArgs& args, int block) {
  const int tokens = args.tokens.valid_rows, taken = std::min(args.capacity, tokens);
  const int first_row = block * args.tokens.rows_per_block;
  order_.resize(tokens);
  for (int expert = 0; expert < layer_.experts; ++expert) {
    std::iota(order_.begin(), order_.end(), 0);
    const auto best_first = [&](int a, int b) {
      const uint32_t order_a = OrderOf(ScoresOf(a)[expert]), order_b = OrderOf(ScoresOf(b)[expert]);
      return order_a != order_b ? order_a > order_b : a < b;
    };
    std::partial_sort(order_.begin(), order_.begin() + taken, order_.end(), best_first);
    for (int rank = 0; rank < tokens; ++rank) {
      const size_t pair = PairIndex(first_row + order_[rank], expert);
      args.routing.expert[pair] = expert;
      args.routing.slot[pair] = rank < taken ? rank : -1;
      args.routing.weight[pair] = ScoresOf(order_[rank])[expert];
    }
  }
  pairs_.assign(layer_.experts, taken);
  kept_ = pairs_;
}

void HostGate::WriteSums(const GateArgs& args) const {
  *args.sums.tokens = args.tokens.valid_rows;
  *args.sums.squared_log_sum_exp = sums_.squared_log_sum_exp;
  *args.sums.entropy = sums_.entropy;
  if (args.counts != nullptr) std::ranges::copy(pairs_, args.counts);
  std::ranges::copy(pairs_, args.sums.pairs);
  std::ranges::copy(kept_, args.sums.kept);
  std::ranges::copy(sums_.probability, args.sums.probability);
}

void HostGate::AssignSlots(const AssignSlotsArgs& args) {
  kept_.resize(layer_.experts);
  for (int expert = 0; expert < layer_.experts; ++expert) {
    int64_t before = 0;
    for (int slice = 0; slice < args.own_slice; ++slice) before += args.all_counts[slice * layer_.experts + expert];
    const int32_t own = args.all_counts[args.own_slice * layer_.experts + expert];
    const int64_t room = args.carried.RoomFor(expert, args.capacity);
    kept_[expert] = static_cast<int32_t>(std::clamp<int64_t>(room - before, 0, own));
    if (args.carried.now != nullptr) {
      int32_t& now = args.carried.now[expert] = args.carried.earlier[expert];
      for (int slice = 0; slice < args.slices; ++slice) now += args.all_counts[slice * layer_.experts + expert];
    }
    args.sums.kept[expert] = kept_[expert];
  }
  int32_t* next = args.send_counts;
  for (int first = 0; first < layer_.experts; first += args.experts_per_rank) {
    for (int chunk = 0; chunk < args.units.chunks; ++chunk) {
      for (int i = 0; i < args.experts_per_rank; ++i) *next++ = SlotsOfChunk(kept_[first + i], args.units, chunk);
    }
  }
  for (size_t pair = 0; pair < PairIndex(args.tokens.valid_rows, 0); ++pair) {
    if (args.routing.slot[pair] >= kept_[args.routing.expert[pair]]) args.routing.slot[pair] = -1;
  }
}

}  // namespace moeplan::executor
