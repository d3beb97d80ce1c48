#include "executor/host/host_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "executor/host/elements.h"
#include "executor/host/gating.h"
#include "executor/host/gemm.h"
#include "executor/host/host_stream.h"

namespace moeplan {
namespace {

// The first row of every cell, and behind them the rows in all.
std::vector<int64_t> FirstRows(const CellLayout& cells) {
  const int count = cells.blocks * cells.cells_per_block;
  std::vector<int64_t> first(count + 1, 0);
  for (int cell = 0; cell < count; ++cell) first[cell + 1] = first[cell] + RowsOfCell(cells, cell);
  return first;
}

class HostKernels final : public Kernels {
 public:
  HostKernels(const Layer& layer, const LayerWeights& weights)
      : layer_(layer),
        weights_(weights),
        type_(ElementTypeOf(layer.bytes_per_element)),
        row_bytes_(static_cast<size_t>(layer.model_dim) * layer.bytes_per_element) {}

  void Gate(const GateArgs& args, Stream& stream) override {
    Run(stream, [this, args] { GateRows(args); });
  }
  void AssignSlots(const AssignSlotsArgs& args, Stream& stream) override {
    Run(stream, [this, args] { AssignSlotsOfSlice(args); });
  }
  void Dispatch(const TokenRows& tokens, const Routing& routing, const SlotRows& out, Stream& stream) override {
    Run(stream, [=, this] { DispatchRows(tokens, routing, out); });
  }
  void CopyCells(const SlotRows& in, const SlotRows& out, std::span<const CellPair> pairs, Stream& stream) override {
    Run(stream, [=, this] { CopyPairs(in, out, pairs); });
  }
  void Expert(const SlotRows& in, const SlotRows& out, std::span<const std::vector<CellPair>> pairs,
              Stream& stream) override {
    Run(stream, [=, this] { ExpertRows(in, out, pairs); });
  }
  void SumCells(const SlotRows& in, const SlotRows& out, std::span<const CellPair> pairs, Stream& stream) override {
    Run(stream, [=, this] { SumPairs(in, out, pairs); });
  }
  void Combine(const SlotRows& slots, const Routing& routing, const TokenRows& out, Stream& stream) override {
    Run(stream, [=, this] { CombineRows(slots, routing, out); });
  }

 private:
  template <typename Function>
  static void Run(Stream& stream, Function function) {
    HostStream::Of(stream).Enqueue([function = std::move(function)] {
      function();
      return OkStatus();
    });
  }

  size_t PairIndex(int row, int choice) const { return static_cast<size_t>(row) * layer_.top_k + choice; }

  void GateRows(const GateArgs& args) const {
    std::vector<float> token(layer_.model_dim), logits(layer_.experts);
    std::vector<int32_t> next_slot(layer_.experts);
    const int capacity = args.counts == nullptr ? args.capacity : std::numeric_limits<int>::max();
    for (int block = 0; block < args.tokens.blocks; ++block) {
      std::ranges::fill(next_slot, 0);
      for (int i = 0; i < args.tokens.valid_rows; ++i) {
        const int row = block * args.tokens.rows_per_block + i;
        Load(args.tokens.data + row * row_bytes_, type_, layer_.model_dim, token.data());
        GateLogits(token, weights_.gate, logits);
        const size_t first = PairIndex(row, 0);
        const std::span experts(args.routing.expert + first, layer_.top_k);
        ChooseExperts(logits, experts, {args.routing.weight + first, static_cast<size_t>(layer_.top_k)});
        for (int choice = 0; choice < layer_.top_k; ++choice) {
          const int32_t slot = next_slot[experts[choice]]++;
          args.routing.slot[first + choice] = slot < capacity ? slot : -1;
        }
      }
    }
    if (args.counts != nullptr) std::ranges::copy(next_slot, args.counts);
  }

  void AssignSlotsOfSlice(const AssignSlotsArgs& args) const {
    std::vector<int32_t> free(layer_.experts);
    for (int expert = 0; expert < layer_.experts; ++expert) {
      int64_t before = 0;
      for (int slice = 0; slice < args.own_slice; ++slice) before += args.all_counts[slice * layer_.experts + expert];
      const int32_t own = args.all_counts[args.own_slice * layer_.experts + expert];
      free[expert] = static_cast<int32_t>(std::clamp<int64_t>(args.capacity - before, 0, own));
      args.send_counts[expert] = free[expert];
    }
    for (int row = 0; row < args.tokens.valid_rows; ++row) {
      for (int choice = 0; choice < layer_.top_k; ++choice) {
        const size_t pair = PairIndex(row, choice);
        if (args.routing.slot[pair] >= free[args.routing.expert[pair]]) args.routing.slot[pair] = -1;
      }
    }
  }

  void DispatchRows(const TokenRows& tokens, const Routing& routing, const SlotRows& out) const {
    const std::vector<int64_t> first_rows = FirstRows(out.cells);
    std::memset(out.data, 0, first_rows.back() * row_bytes_);
    for (int block = 0; block < tokens.blocks; ++block) {
      const int first_row = block * tokens.rows_per_block;
      ForEachPlacedPair(out, routing, first_row, tokens.valid_rows, block,
                        [&](int row, size_t, const SlotPlace& place) {
                          std::memcpy(out.data + (first_rows[place.cell] + place.row) * row_bytes_,
                                      tokens.data + row * row_bytes_, row_bytes_);
                        });
    }
  }

  void CombineRows(const SlotRows& slots, const Routing& routing, const TokenRows& out) const {
    const std::vector<int64_t> first_rows = FirstRows(slots.cells);
    std::vector<float> sum(static_cast<size_t>(out.rows_per_block) * layer_.model_dim, 0.0F), part(layer_.model_dim);
    // The routing holds every block that was gated; `out` is the own one.
    const int block = slots.address.own_block;
    const int first_row = block * out.rows_per_block;
    ForEachPlacedPair(
        slots, routing, first_row, out.valid_rows, block, [&](int row, size_t pair, const SlotPlace& place) {
          Load(slots.data + (first_rows[place.cell] + place.row) * row_bytes_, type_, layer_.model_dim, part.data());
          float* to = sum.data() + static_cast<size_t>(row - first_row) * layer_.model_dim;
          for (int column = 0; column < layer_.model_dim; ++column) to[column] += routing.weight[pair] * part[column];
        });
    Store(sum.data(), type_, sum.size(), out.data);
  }

  // Calls visit(row of the routing, index of the pair, place in `slots`) for every kept pair that lies in `slots`.
  template <typename Visit>
  void ForEachPlacedPair(const SlotRows& slots, const Routing& routing, int first_row, int rows, int block,
                         Visit visit) const {
    for (int row = first_row; row < first_row + rows; ++row) {
      for (int choice = 0; choice < layer_.top_k; ++choice) {
        const size_t pair = PairIndex(row, choice);
        if (routing.slot[pair] < 0) continue;
        const SlotPlace place = PlaceOf(slots.address, routing.expert[pair], block, routing.slot[pair]);
        if (place.cell >= 0) visit(row, pair, place);
      }
    }
  }

  void CopyPairs(const SlotRows& in, const SlotRows& out, std::span<const CellPair> pairs) const {
    const std::vector<int64_t> from = FirstRows(in.cells), to = FirstRows(out.cells);
    for (const CellPair& pair : pairs) {
      std::memcpy(out.data + to[pair.to] * row_bytes_, in.data + from[pair.from] * row_bytes_,
                  (from[pair.from + 1] - from[pair.from]) * row_bytes_);
    }
  }

  void SumPairs(const SlotRows& in, const SlotRows& out, std::span<const CellPair> pairs) const {
    const std::vector<int64_t> from = FirstRows(in.cells), to = FirstRows(out.cells);
    std::vector<float> sum;
    for (size_t i = 0; i < pairs.size();) {
      const int32_t target = pairs[i].to;
      sum.assign((to[target + 1] - to[target]) * layer_.model_dim, 0.0F);
      for (; i < pairs.size() && pairs[i].to == target; ++i) {
        Accumulate(in.data + from[pairs[i].from] * row_bytes_, type_, sum.size(), sum.data());
      }
      Store(sum.data(), type_, sum.size(), out.data + to[target] * row_bytes_);
    }
  }

  void ExpertRows(const SlotRows& in, const SlotRows& out, std::span<const std::vector<CellPair>> pairs) {
    const std::vector<int64_t> from = FirstRows(in.cells), to = FirstRows(out.cells);
    for (size_t expert = 0; expert < pairs.size(); ++expert) {
      size_t rows = 0;
      for (const CellPair& pair : pairs[expert]) rows += from[pair.from + 1] - from[pair.from];
      input_.resize(rows * layer_.model_dim);
      float* next = input_.data();
      for (const CellPair& pair : pairs[expert]) {
        const size_t count = (from[pair.from + 1] - from[pair.from]) * layer_.model_dim;
        Load(in.data + from[pair.from] * row_bytes_, type_, count, next);
        next += count;
      }
      FeedForward(static_cast<int>(expert), static_cast<int>(rows));
      next = output_.data();
      for (const CellPair& pair : pairs[expert]) {
        const size_t count = (from[pair.from + 1] - from[pair.from]) * layer_.model_dim;
        Store(next, type_, count, out.data + to[pair.to] * row_bytes_);
        next += count;
      }
    }
  }

  // input_ [rows][M] to output_ [rows][M] through the shard's hidden columns.
  void FeedForward(int expert, int rows) {
    const int hidden = weights_.shard.hidden;
    const size_t matrix = static_cast<size_t>(layer_.model_dim) * hidden;
    hidden_.resize(static_cast<size_t>(rows) * hidden);
    output_.resize(static_cast<size_t>(rows) * layer_.model_dim);
    Multiply(input_.data(), weights_.up.data() + expert * matrix, hidden_.data(), rows, layer_.model_dim, hidden);
    if (layer_.expert_matrices == 3) {
      gate_up_.resize(hidden_.size());
      Multiply(input_.data(), weights_.gate_up.data() + expert * matrix, gate_up_.data(), rows, layer_.model_dim,
               hidden);
      for (size_t i = 0; i < hidden_.size(); ++i) hidden_[i] *= gate_up_[i] / (1 + std::exp(-gate_up_[i]));
    } else {
      constexpr float kInverseSqrt2 = std::numbers::sqrt2_v<float> / 2;
      for (float& value : hidden_) value *= 0.5F * (1 + std::erf(value * kInverseSqrt2));
    }
    Multiply(hidden_.data(), weights_.down.data() + expert * matrix, output_.data(), rows, hidden, layer_.model_dim);
  }

  const Layer layer_;
  const LayerWeights& weights_;
  const ElementType type_;
  const size_t row_bytes_;
  // Scratch of the compute stream, kept between runs.
  std::vector<float> input_, hidden_, gate_up_, output_;
};

}  // namespace

std::unique_ptr<Kernels> MakeHostKernels(const Layer& layer, const LayerWeights& weights) {
  return std::make_unique<HostKernels>(layer, weights);
}

}  // namespace moeplan
