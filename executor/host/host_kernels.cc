#include "executor/host/host_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "executor/host/elements.h"
#include "executor/host/gemm.h"
#include "executor/host/host_gate.h"
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
        gate_(layer, weights.gate),
        type_(ElementTypeOf(layer.bytes_per_element)),
        row_bytes_(static_cast<size_t>(layer.model_dim) * layer.bytes_per_element),
        width_(RoutingWidth(layer)) {}

  void Gate(const GateArgs& args, Stream& stream) override {
    Run(stream, [this, args] { gate_.Route(args); });
  }
  void AssignSlots(const AssignSlotsArgs& args, Stream& stream) override {
    Run(stream, [this, args] { gate_.AssignSlots(args); });
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
  void SharedExpert(const TokenRows& in, const TokenRows& out, Stream& stream) override {
    Run(stream, [=, this] { SharedExpertRows(in, out); });
  }
  void Combine(const CombineArgs& args, Stream& stream) override {
    Run(stream, [this, args] { CombineRows(args); });
  }

 private:
  template <typename Function>
  static void Run(Stream& stream, Function function) {
    HostStream::Of(stream).Enqueue([function = std::move(function)] {
      function();
      return OkStatus();
    });
  }

  size_t PairIndex(int row, int choice) const { return static_cast<size_t>(row) * width_ + choice; }

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

  void CombineRows(const CombineArgs& args) const {
    const SlotRows& slots = args.slots;
    const TokenRows& out = args.out;
    const std::vector<int64_t> first_rows = FirstRows(slots.cells);
    std::vector<float> sum(static_cast<size_t>(out.rows_per_block) * layer_.model_dim, 0.0F), part(layer_.model_dim);
    if (args.addend != nullptr) {
      Load(args.addend, type_, static_cast<size_t>(out.valid_rows) * layer_.model_dim, sum.data());
    }
    // The routing holds every block that was gated; `out` is the own one.
    const int block = slots.address.own_block;
    const int first_row = block * out.rows_per_block;
    ForEachPlacedPair(
        slots, args.routing, first_row, out.valid_rows, block, [&](int row, size_t pair, const SlotPlace& place) {
          Load(slots.data + (first_rows[place.cell] + place.row) * row_bytes_, type_, layer_.model_dim, part.data());
          float* to = sum.data() + static_cast<size_t>(row - first_row) * layer_.model_dim;
          for (int column = 0; column < layer_.model_dim; ++column)
            to[column] += args.routing.weight[pair] * part[column];
        });
    Store(sum.data(), type_, sum.size(), out.data);
  }

  // Calls visit(row of the routing, index of the pair, place in `slots`) for every kept pair that lies in `slots`.
  template <typename Visit>
  void ForEachPlacedPair(const SlotRows& slots, const Routing& routing, int first_row, int rows, int block,
                         Visit visit) const {
    for (int row = first_row; row < first_row + rows; ++row) {
      for (int choice = 0; choice < width_; ++choice) {
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
      FeedForward(weights_.experts, static_cast<int>(expert), static_cast<int>(rows));
      next = output_.data();
      for (const CellPair& pair : pairs[expert]) {
        const size_t count = (from[pair.from + 1] - from[pair.from]) * layer_.model_dim;
        Store(next, type_, count, out.data + to[pair.to] * row_bytes_);
        next += count;
      }
    }
  }

  void SharedExpertRows(const TokenRows& in, const TokenRows& out) {
    const size_t count = static_cast<size_t>(in.valid_rows) * layer_.model_dim;
    input_.resize(count);
    Load(in.data, type_, count, input_.data());
    FeedForward(weights_.shared, /*expert=*/0, in.valid_rows);
    Store(output_.data(), type_, count, out.data);
  }

  // input_ [rows][M] to output_ [rows][M] through the shard's hidden columns.
  void FeedForward(const ExpertWeights& weights, int expert, int rows) {
    const int hidden = weights.shard.hidden, model = layer_.model_dim;
    const size_t matrix = static_cast<size_t>(model) * hidden;
    hidden_.resize(static_cast<size_t>(rows) * hidden);
    output_.resize(static_cast<size_t>(rows) * model);
    Multiply(input_.data(), weights.up.data() + expert * matrix, hidden_.data(), rows, model, hidden);
    AddBias(weights.up_bias, expert, hidden, hidden_);
    if (layer_.expert_matrices == 3) {
      gate_up_.resize(hidden_.size());
      Multiply(input_.data(), weights.gate_up.data() + expert * matrix, gate_up_.data(), rows, model, hidden);
      AddBias(weights.gate_up_bias, expert, hidden, gate_up_);
      for (size_t i = 0; i < hidden_.size(); ++i) hidden_[i] *= gate_up_[i] / (1 + std::exp(-gate_up_[i]));
    } else {
      constexpr float kInverseSqrt2 = std::numbers::sqrt2_v<float> / 2;
      for (float& value : hidden_) value *= 0.5F * (1 + std::erf(value * kInverseSqrt2));
    }
    Multiply(hidden_.data(), weights.down.data() + expert * matrix, output_.data(), rows, hidden, model);
    AddBias(weights.down_bias, expert, model, output_);
  }

  // To every row of `columns` elements, the bias of `expert`, if there are biases.
  static void AddBias(const std::vector<float>& biases, int expert, int columns, std::vector<float>& rows) {
    if (biases.empty()) return;
    const float* bias = biases.data() + static_cast<size_t>(expert) * columns;
    for (size_t start = 0; start < rows.size(); start += columns) {
      for (int column = 0; column < columns; ++column) rows[start + column] += bias[column];
    }
  }

  const Layer layer_;
  const LayerWeights& weights_;
  HostGate gate_;
  const ElementType type_;
  const size_t row_bytes_;
  const int width_;
  // Scratch of the compute stream, kept between runs.
  std::vector<float> input_, hidden_, gate_up_, output_;
};

}  // namespace

std::unique_ptr<Kernels> MakeHostKernels(const Layer& layer, const LayerWeights& weights) {
  return std::make_unique<HostKernels>(layer, weights);
}

}  // namespace moeplan
