#include "executor/host/host_kernels.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "executor/codec/codec.h"
#include "executor/host/elements.h"
#include "executor/host/expert_ffn.h"
#include "executor/host/first_rows.h"
#include "executor/host/gating.h"
#include "executor/host/gemm.h"
#include "executor/host/host_gate.h"
#include "executor/host/host_stream.h"

namespace moeplan::executor {
namespace {

class HostKernels final : public Kernels {
 public:
  HostKernels(const Layer& layer, const LayerWeightsView& weights, const LayerGradientsView& gradients)
      : layer_(layer),
        weights_(weights),
        gate_(layer, weights.router()),
        type_(ElementTypeOf(layer.bytes_per_element)),
        row_bytes_(static_cast<size_t>(layer.model_dim) * layer.bytes_per_element),
        width_(RoutingWidth(layer)),
        ffn_(layer, weights.experts, gradients.experts),
        shared_ffn_(layer, weights.shared, gradients.shared) {}

  Status CheckCodec(Codec codec) const override { return executor::CheckCodec(codec); }

  void UseHostMemory(const LayerWeightsView& weights, const LayerGradientsView& gradients) override {
    if (!weights.gate.empty()) {
      weights_ = weights;
      gate_.UseWeights(weights.router());
      ffn_.UseWeights(weights.experts);
      shared_ffn_.UseWeights(weights.shared);
    }
    if (!gradients.given) return;
    ffn_.UseGradients(gradients.experts);
    shared_ffn_.UseGradients(gradients.shared);
  }

  void AddValues(const float* from, int64_t count, float* to, Stream& stream) override {
    Run(stream, [=] { std::transform(from, from + count, to, to, std::plus<>()); });
  }

  void Gate(const GateArgs& args, Stream& stream) override {
    Run(stream, [this, args] { gate_.Route(args); });
  }
  void AssignSlots(const AssignSlotsArgs& args, Stream& stream) override {
    Run(stream, [this, args] { gate_.AssignSlots(args); });
  }
  void Dispatch(const TokenRows& tokens, const Routing& routing, const SlotRows& out, Stream& stream) override {
    Run(stream, [=, this, rows = FirstRows(out.cells)]() mutable { DispatchRows(tokens, routing, out, rows.Now()); });
  }
  void Encode(Codec codec, const SlotRows& in, std::byte* out, Stream& stream) override {
    HostStream::Of(stream).Enqueue([=, this, rows = FirstRows(in.cells)]() mutable {
      return executor::Encode(codec, ShapeOf(rows.Now()), in.data, out);
    });
  }
  void Decode(Codec codec, const std::byte* in, const SlotRows& out, Stream& stream) override {
    HostStream::Of(stream).Enqueue([=, this, rows = FirstRows(out.cells)]() mutable {
      return executor::Decode(codec, ShapeOf(rows.Now()), in, out.data);
    });
  }
  void CopyCells(const SlotRows& in, const SlotRows& out, std::span<const CellPair> pairs, Stream& stream) override {
    Run(stream, [=, this, from = FirstRows(in.cells), to = FirstRows(out.cells)]() mutable {
      CopyPairs(in, out, {from.Now(), to.Now()}, pairs);
    });
  }
  void Expert(const SlotRows& in, const SlotRows& out, std::byte* hidden, std::span<const std::vector<CellPair>> pairs,
              Stream& stream) override {
    Run(stream, [=, this, from = FirstRows(in.cells), to = FirstRows(out.cells)]() mutable {
      ExpertRows(in, out, hidden, {from.Now(), to.Now()}, pairs);
    });
  }
  void SumCells(const SlotRows& in, const SlotRows& out, std::span<const CellPair> pairs, Stream& stream) override {
    Run(stream, [=, this, from = FirstRows(in.cells), to = FirstRows(out.cells)]() mutable {
      SumPairs(in, out, {from.Now(), to.Now()}, pairs);
    });
  }
  void SharedExpert(const TokenRows& in, const TokenRows& out, std::byte* hidden, Stream& stream) override {
    Run(stream, [=, this] { SharedExpertRows(in, out, hidden); });
  }
  void Combine(const CombineArgs& args, Stream& stream) override {
    Run(stream, [this, args, rows = FirstRows(args.slots.cells)]() mutable { CombineRows(args, rows.Now()); });
  }
  void CombineGradient(const TokenRows& out_gradient, const Routing& routing, const SlotRows& slots_gradient,
                       Stream& stream) override {
    Run(stream, [=, this, rows = FirstRows(slots_gradient.cells)]() mutable {
      CombineGradients(out_gradient, routing, slots_gradient, rows.Now());
    });
  }
  void RoutingGradient(const TokenRows& out_gradient, const SlotRows& slots, const Routing& routing, float* gradient,
                       Stream& stream) override {
    Run(stream, [=, this, rows = FirstRows(slots.cells)]() mutable {
      RoutingGradients(out_gradient, slots, routing, rows.Now(), gradient);
    });
  }
  void ExpertInputGradient(const ExpertInputGradientArgs& args, Stream& stream) override {
    Run(stream, [=, this, from = FirstRows(args.out_gradient.cells), to = FirstRows(args.in_gradient.cells)]() mutable {
      ExpertInputGradients(args, {from.Now(), to.Now()});
    });
  }
  void ExpertWeightGradient(const ExpertWeightGradientArgs& args, Stream& stream) override {
    Run(stream, [=, this, rows = FirstRows(args.in.cells)]() mutable { ExpertWeightGradients(args, rows.Now()); });
  }
  void SharedInputGradient(const SharedInputGradientArgs& args, Stream& stream) override {
    Run(stream, [=, this] { SharedInputGradients(args); });
  }
  void SharedWeightGradient(const SharedWeightGradientArgs& args, Stream& stream) override {
    Run(stream, [=, this] { SharedWeightGradients(args); });
  }
  void DispatchGradient(const SlotRows& slots_gradient, const Routing& routing, const TokenRows& tokens_gradient,
                        Stream& stream) override {
    Run(stream, [=, this, rows = FirstRows(slots_gradient.cells)]() mutable {
      DispatchGradients(slots_gradient, routing, tokens_gradient, rows.Now());
    });
  }
  void GateGradient(const GateGradientArgs& args, Stream& stream) override {
    Run(stream, [=, this] { GateGradients(args); });
  }

  void SplitByNode(const SplitByNodeArgs& args, Stream& stream) override {
    Run(stream, [this, args] { SplitRowsByNode(args); });
  }
  void RelayRouting(const RelayRoutingArgs& args, Stream& stream) override {
    Run(stream, [this, args] { FindRelayRouting(args); });
  }
  void SumOverNodes(const SlotRows& rows, const Routing& node_routing, const TokenRows& tokens, float* gradient,
                    Stream& stream) override {
    Run(stream, [=, this, first = FirstRows(rows.cells)]() mutable {
      SumRowsOverNodes(rows, node_routing, tokens, first.Now(), gradient);
    });
  }

 private:
  template <typename Function>
  static void Run(Stream& stream, Function function) {
    HostStream::Of(stream).Enqueue([function = std::move(function)]() mutable {
      function();
      return OkStatus();
    });
  }

  size_t PairIndex(int row, int choice) const { return static_cast<size_t>(row) * width_ + choice; }

  using RowsOfCells = std::vector<int64_t>;
  struct RowsOfPairs {
    const RowsOfCells &from, &to;
  };

  void WeighRow(const std::byte* row, float weight, std::byte* to) {
    Load(row, type_, model_dim(), input_.data());
    for (float& value : input_) value *= weight;
    Store(input_.data(), type_, model_dim(), to);
  }

  void DispatchRows(const TokenRows& tokens, const Routing& routing, const SlotRows& out,
                    const RowsOfCells& first_rows) {
    input_.resize(model_dim());
    std::memset(out.data, 0, first_rows.back() * row_bytes_);
    for (int block = 0; block < tokens.blocks; ++block) {
      const int first_row = block * tokens.rows_per_block;
      ForEachPlacedPair(out, routing, first_row, tokens.valid_rows, block,
                        [&](int row, size_t pair, const SlotPlace& place) {
                          std::byte* const to = out.data + (first_rows[place.cell] + place.row) * row_bytes_;
                          if (layer_.router.weighs_input) {
                            WeighRow(tokens.data + row * row_bytes_, routing.weight[pair], to);
                          } else {
                            std::memcpy(to, tokens.data + row * row_bytes_, row_bytes_);
                          }
                        });
    }
  }

  void CombineRows(const CombineArgs& args, const RowsOfCells& first_rows) {
    const SlotRows& slots = args.slots;
    const TokenRows& out = args.out;
    std::vector<float>&sum = output_, &part = input_;
    sum.assign(static_cast<size_t>(out.rows_per_block) * layer_.model_dim, 0.0F);
    part.resize(layer_.model_dim);
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
          const float weight = layer_.router.weighs_input ? 1 : args.routing.weight[pair];
          for (int column = 0; column < layer_.model_dim; ++column) to[column] += weight * part[column];
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

  ElementRowsShape ShapeOf(std::span<const int64_t> first_rows) const {
    return {.type = type_, .rows = first_rows.back(), .columns = layer_.model_dim};
  }

  void CopyPairs(const SlotRows& in, const SlotRows& out, const RowsOfPairs& rows,
                 std::span<const CellPair> pairs) const {
    const auto& [from, to] = rows;
    for (const CellPair& pair : pairs) {
      std::memcpy(out.data + to[pair.to] * row_bytes_, in.data + from[pair.from] * row_bytes_,
                  (from[pair.from + 1] - from[pair.from]) * row_bytes_);
    }
  }

  void SumPairs(const SlotRows& in, const SlotRows& out, const RowsOfPairs& rows, std::span<const CellPair> pairs) {
    const auto& [from, to] = rows;
    std::vector<float>& sum = output_;
    for (size_t i = 0; i < pairs.size();) {
      const int32_t target = pairs[i].to;
      sum.assign((to[target + 1] - to[target]) * layer_.model_dim, 0.0F);
      for (; i < pairs.size() && pairs[i].to == target; ++i) {
        Accumulate(in.data + from[pairs[i].from] * row_bytes_, type_, sum.size(), sum.data());
      }
      Store(sum.data(), type_, sum.size(), out.data + to[target] * row_bytes_);
    }
  }

  // The rows of one expert, gathered from its cells and given back to cells.
  class ExpertCells {
   public:
    ExpertCells(const std::vector<int64_t>& first_rows, std::span<const CellPair> pairs, int32_t CellPair::*side)
        : first_rows_(first_rows), pairs_(pairs), side_(side) {
      for (const CellPair& pair : pairs_) rows_ += RowsOf(pair);
    }

    int rows() const { return static_cast<int>(rows_); }

    void Load(const std::byte* from, ElementType type, size_t columns, std::vector<float>& rows) const {
      rows.resize(rows_ * columns);
      float* next = rows.data();
      for (const CellPair& pair : pairs_) {
        const size_t count = RowsOf(pair) * columns;
        executor::Load(from + FirstOf(pair) * columns * BytesOf(type), type, count, next);
        next += count;
      }
    }
    void Store(const std::vector<float>& rows, ElementType type, size_t columns, std::byte* to) const {
      const float* next = rows.data();
      for (const CellPair& pair : pairs_) {
        const size_t count = RowsOf(pair) * columns;
        executor::Store(next, type, count, to + FirstOf(pair) * columns * BytesOf(type));
        next += count;
      }
    }

   private:
    size_t FirstOf(const CellPair& pair) const { return first_rows_[pair.*side_]; }
    size_t RowsOf(const CellPair& pair) const { return first_rows_[pair.*side_ + 1] - first_rows_[pair.*side_]; }

    const std::vector<int64_t>& first_rows_;
    const std::span<const CellPair> pairs_;
    int32_t CellPair::*const side_;
    size_t rows_ = 0;
  };

  void ExpertRows(const SlotRows& in, const SlotRows& out, std::byte* hidden, const RowsOfPairs& rows,
                  std::span<const std::vector<CellPair>> pairs) {
    for (size_t expert = 0; expert < pairs.size(); ++expert) {
      const ExpertCells from(rows.from, pairs[expert], &CellPair::from), to(rows.to, pairs[expert], &CellPair::to);
      from.Load(in.data, type_, model_dim(), input_);
      output_.resize(input_.size());
      if (hidden != nullptr) kept_.resize(from.rows() * kept_columns());
      ffn_.Forward(static_cast<int>(expert), from.rows(), input_.data(), hidden == nullptr ? nullptr : kept_.data(),
                   output_.data());
      to.Store(output_, type_, model_dim(), out.data);
      if (hidden != nullptr) from.Store(kept_, type_, kept_columns(), hidden);
    }
  }

  void ExpertInputGradients(const ExpertInputGradientArgs& args, const RowsOfPairs& rows) {
    for (size_t expert = 0; expert < args.pairs.size(); ++expert) {
      const ExpertCells from(rows.from, args.pairs[expert], &CellPair::from);
      const ExpertCells to(rows.to, args.pairs[expert], &CellPair::to);
      from.Load(args.out_gradient.data, type_, model_dim(), output_);
      from.Load(args.hidden, type_, kept_columns(), kept_);
      input_.resize(output_.size());
      kept_gradient_.resize(kept_.size());
      ffn_.InputGradient(static_cast<int>(expert), from.rows(), kept_.data(), output_.data(), kept_gradient_.data(),
                         input_.data());
      to.Store(input_, type_, model_dim(), args.in_gradient.data);
      from.Store(kept_gradient_, type_, kept_columns(), args.hidden_gradient);
    }
  }

  void LoadRows(const std::byte* from, int rows, size_t columns, std::vector<float>& to) const {
    to.resize(rows * columns);
    Load(from, type_, to.size(), to.data());
  }

  void SharedExpertRows(const TokenRows& in, const TokenRows& out, std::byte* hidden) {
    LoadRows(in.data, in.valid_rows, model_dim(), input_);
    output_.resize(input_.size());
    if (hidden != nullptr) kept_.resize(in.valid_rows * shared_ffn_.kept_columns());
    shared_ffn_.Forward(/*expert=*/0, in.valid_rows, input_.data(), hidden == nullptr ? nullptr : kept_.data(),
                        output_.data());
    Store(output_.data(), type_, output_.size(), out.data);
    if (hidden != nullptr) Store(kept_.data(), type_, kept_.size(), hidden);
  }

  void SharedInputGradients(const SharedInputGradientArgs& args) {
    const int rows = args.out_gradient.valid_rows;
    LoadRows(args.out_gradient.data, rows, model_dim(), output_);
    LoadRows(args.hidden, rows, shared_ffn_.kept_columns(), kept_);
    input_.resize(output_.size());
    kept_gradient_.resize(kept_.size());
    shared_ffn_.InputGradient(/*expert=*/0, rows, kept_.data(), output_.data(), kept_gradient_.data(), input_.data());
    Store(input_.data(), type_, input_.size(), args.in_gradient);
    Store(kept_gradient_.data(), type_, kept_gradient_.size(), args.hidden_gradient);
  }

  void SharedWeightGradients(const SharedWeightGradientArgs& args) {
    const int rows = args.in.valid_rows;
    LoadRows(args.in.data, rows, model_dim(), input_);
    LoadRows(args.out_gradient, rows, model_dim(), output_);
    LoadRows(args.hidden, rows, shared_ffn_.kept_columns(), kept_);
    LoadRows(args.hidden_gradient, rows, shared_ffn_.kept_columns(), kept_gradient_);
    shared_ffn_.WeightGradient(/*expert=*/0, rows, input_.data(), kept_.data(), output_.data(), kept_gradient_.data(),
                               /*scale=*/1);
  }

  void ExpertWeightGradients(const ExpertWeightGradientArgs& args, const RowsOfCells& rows) {
    for (size_t expert = 0; expert < args.pairs.size(); ++expert) {
      const ExpertCells cells(rows, args.pairs[expert], &CellPair::from);
      cells.Load(args.in.data, type_, model_dim(), input_);
      cells.Load(args.hidden, type_, kept_columns(), kept_);
      cells.Load(args.out_gradient, type_, model_dim(), output_);
      cells.Load(args.hidden_gradient, type_, kept_columns(), kept_gradient_);
      ffn_.WeightGradient(static_cast<int>(expert), cells.rows(), input_.data(), kept_.data(), output_.data(),
                          kept_gradient_.data(), args.scale);
    }
  }

  void CombineGradients(const TokenRows& out_gradient, const Routing& routing, const SlotRows& slots,
                        const RowsOfCells& first_rows) {
    std::memset(slots.data, 0, first_rows.back() * row_bytes_);
    input_.resize(model_dim());
    for (int block = 0; block < out_gradient.blocks; ++block) {
      const int first_row = block * out_gradient.rows_per_block;
      const auto weigh = [&](int row, size_t pair, const SlotPlace& place) {
        WeighRow(out_gradient.data + row * row_bytes_, layer_.router.weighs_input ? 1 : routing.weight[pair],
                 slots.data + (first_rows[place.cell] + place.row) * row_bytes_);
      };
      ForEachPlacedPair(slots, routing, first_row, out_gradient.valid_rows, block, weigh);
    }
  }

  void RoutingGradients(const TokenRows& out_gradient, const SlotRows& slots, const Routing& routing,
                        const RowsOfCells& first_rows, float* gradient) {
    std::fill_n(gradient, PairIndex(out_gradient.rows_per_block, 0), 0.0F);
    const int block = slots.address.own_block;
    const int first_row = block * out_gradient.rows_per_block;
    input_.resize(model_dim());
    output_.resize(model_dim());
    const auto multiply = [&](int row, size_t pair, const SlotPlace& place) {
      Load(out_gradient.data + (row - first_row) * row_bytes_, type_, model_dim(), output_.data());
      Load(slots.data + (first_rows[place.cell] + place.row) * row_bytes_, type_, model_dim(), input_.data());
      gradient[pair - PairIndex(first_row, 0)] =
          std::inner_product(input_.begin(), input_.end(), output_.begin(), 0.0F);
    };
    ForEachPlacedPair(slots, routing, first_row, out_gradient.valid_rows, block, multiply);
  }

  void DispatchGradients(const SlotRows& slots, const Routing& routing, const TokenRows& tokens,
                         const RowsOfCells& first_rows) {
    std::vector<float>& sum = output_;
    sum.assign(static_cast<size_t>(tokens.blocks) * tokens.rows_per_block * model_dim(), 0.0F);
    for (int block = 0; block < tokens.blocks; ++block) {
      const auto add = [&](int row, size_t, const SlotPlace& place) {
        Accumulate(slots.data + (first_rows[place.cell] + place.row) * row_bytes_, type_, model_dim(),
                   sum.data() + row * model_dim());
      };
      ForEachPlacedPair(slots, routing, block * tokens.rows_per_block, tokens.valid_rows, block, add);
    }
    Store(sum.data(), type_, sum.size(), tokens.data);
  }

  void GateGradients(const GateGradientArgs& args) {
    std::vector<float>&token = input_, &gradient = output_;
    for (std::vector<float>* row : {&token, &gradient}) row->resize(model_dim());
    for (std::vector<float>* row : {&logits_, &scores_, &logit_gradients_}) row->resize(layer_.experts);
    FindSlopes(layer_, args.pair_counts, args.batch_tokens, slopes_);
    std::fill_n(args.gate_gradient, GateGradientValues(layer_), 0.0F);
    for (int row = 0; row < args.tokens.valid_rows; ++row) {
      Load(args.tokens.data + row * row_bytes_, type_, model_dim(), token.data());
      Load(args.tokens_gradient + row * row_bytes_, type_, model_dim(), gradient.data());
      FindLogitGradients(args, row);
      if (layer_.router.weighs_input) {
        for (float& value : gradient) value *= args.routing.weight[PairIndex(row, 0)];
      }
      if (args.shared_gradient != nullptr) {
        Accumulate(args.shared_gradient + row * row_bytes_, type_, model_dim(), gradient.data());
      }
      for (int expert = 0; expert < layer_.experts; ++expert) {
        const float* weights = weights_.gate.data() + expert * model_dim();
        float* weight_gradients = args.gate_gradient + expert * model_dim();
        for (size_t column = 0; column < model_dim(); ++column) {
          gradient[column] += logit_gradients_[expert] * weights[column];
          weight_gradients[column] += logit_gradients_[expert] * token[column];
        }
        if (layer_.router.bias) args.gate_gradient[layer_.experts * model_dim() + expert] += logit_gradients_[expert];
      }
      Store(gradient.data(), type_, model_dim(), args.in_gradient + row * row_bytes_);
    }
  }

  // Finds those of the token in input_, whose gradient through its experts is in output_.
  void FindLogitGradients(const GateGradientArgs& args, int row) {
    const size_t first = PairIndex(row, 0), choices = width_;
    GateLogits(input_, weights_.router(), logits_);
    const GateScore score = Scores(layer_, logits_, scores_);
    const GatedToken token = {.row = input_, .logits = logits_, .scores = scores_};
    const float of_input = std::inner_product(input_.begin(), input_.end(), output_.begin(), 0.0F);
    const std::span<const float> weight_gradients =
        layer_.router.weighs_input ? std::span(&of_input, 1) : std::span(args.routing_gradient + first, choices);
    LogitGradients(layer_, token, {{args.routing.expert + first, choices}, {args.routing.weight + first, choices}},
                   weight_gradients, logit_gradients_);
    AddRouterLossGradients(layer_, slopes_, score, token, logit_gradients_);
  }

  void SplitRowsByNode(const SplitByNodeArgs& args) {
    std::fill_n(args.node_counts, args.nodes, 0);
    std::vector<bool>& goes = goes_to_;
    for (int row = 0; row < args.tokens.valid_rows; ++row) {
      goes.assign(args.nodes, false);
      for (int choice = 0; choice < width_; ++choice) {
        const size_t pair = PairIndex(row, choice);
        if (args.routing.slot[pair] >= 0) goes[args.routing.expert[pair] / args.experts_per_node] = true;
      }
      int choice = 0;
      for (int node = 0; node < args.nodes; ++node) {
        if (goes[node]) SetPair(args.node_routing, PairIndex(row, choice++), node, args.node_counts[node]++, 1);
      }
      for (; choice < width_; ++choice) SetPair(args.node_routing, PairIndex(row, choice), 0, -1, 0);
    }
  }

  static void SetPair(const Routing& routing, size_t pair, int expert, int slot, float weight) {
    routing.expert[pair] = expert;
    routing.slot[pair] = slot;
    routing.weight[pair] = weight;
  }

  void FindRelayRouting(const RelayRoutingArgs& args) {
    const int first_expert = args.own_node * args.experts_per_node;
    const size_t pairs = PairIndex(args.rows_per_node, 0);
    std::fill_n(args.pair_counts, args.experts_per_node, 0);
    std::vector<int32_t>& before = pairs_of_nodes_before_;
    int row = 0;  // Of those that come.
    for (int node = 0; node < args.nodes; ++node) {
      // Read alone, as Routing has no form for that.
      const Routing from = Routing::At(const_cast<std::byte*>(args.routings) + node * Routing::Bytes(pairs), pairs);
      const int first_row = row;
      before.assign(args.pair_counts, args.pair_counts + args.experts_per_node);
      for (int token = 0; token < args.valid_rows; ++token) {
        bool comes = false;
        for (int choice = 0; choice < width_; ++choice) {
          const size_t pair = PairIndex(token, choice), to = PairIndex(row, choice);
          const int expert = from.expert[pair] - first_expert;
          const bool here = from.slot[pair] >= 0 && expert >= 0 && expert < args.experts_per_node;
          comes |= here;
          SetPair(args.routing, to, 0, -1, 0);
          if (!here) continue;
          const int slot = before[expert] + from.slot[pair];
          args.pair_counts[expert] = std::max(args.pair_counts[expert], slot + 1);
          SetPair(args.routing, to, expert, slot, from.weight[pair]);
        }
        if (comes) ++row;
      }
      args.row_counts[node] = row - first_row;
    }
    std::fill(args.routing.slot + PairIndex(row, 0), args.routing.slot + args.nodes * pairs, -1);
  }

  void SumRowsOverNodes(const SlotRows& rows, const Routing& node_routing, const TokenRows& tokens,
                        const RowsOfCells& first_rows, float* gradient) {
    std::fill_n(gradient, PairIndex(tokens.rows_per_block, 0), 0.0F);
    const auto* const values = reinterpret_cast<const float*>(rows.data);
    ForEachPlacedPair(rows, node_routing, 0, tokens.valid_rows, 0, [&](int row, size_t, const SlotPlace& place) {
      const float* const from = values + PairIndex(static_cast<int>(first_rows[place.cell] + place.row), 0);
      for (int choice = 0; choice < width_; ++choice) gradient[PairIndex(row, choice)] += from[choice];
    });
  }

  size_t model_dim() const { return layer_.model_dim; }
  size_t kept_columns() const { return ffn_.kept_columns(); }

  const Layer layer_;
  LayerWeightsView weights_;
  HostGate gate_;
  const ElementType type_;
  const size_t row_bytes_;
  const int width_;
  ExpertFfn ffn_, shared_ffn_;
  // Scratch of the compute stream, kept between runs.
  std::vector<float> input_, output_, kept_, kept_gradient_;
  std::vector<float> logits_, scores_, logit_gradients_;
  std::vector<int32_t> pairs_of_nodes_before_;  // By expert.
  std::vector<bool> goes_to_;                   // By node.
  RouterLossSlopes slopes_;
};

}  // namespace

StatusOr<std::unique_ptr<Kernels>> MakeHostKernels(const Layer& layer, const LayerWeightsView& weights,
                                                   const LayerGradientsView& gradients) {
  RETURN_IF_ERROR(LoadGemm());
  return std::make_unique<HostKernels>(layer, weights, gradients);
}

}  // namespace moeplan::executor
