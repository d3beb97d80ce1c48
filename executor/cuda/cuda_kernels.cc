#include "executor/cuda/cuda_kernels.h"

#include <map>
#include <optional>

#include "executor/cuda/bias_kernels.h"
#include "executor/cuda/codec_kernels.h"
#include "executor/cuda/cuda_ffn.h"
#include "executor/cuda/gate_kernels.h"
#include "executor/cuda/host_counts.h"
#include "executor/cuda/node_kernels.h"
#include "executor/cuda/row_kernels.h"
#include "executor/host/elements.h"
#include "executor/host/first_rows.h"
#include "executor/host/gating.h"
#include "executor/host/host_stream.h"
#include "models/workload/expert.h"

namespace moeplan::executor::cuda {
namespace {

GateShape ShapeOf(const Layer& layer) {
  return {.rows = {.type = ElementTypeOf(layer.bytes_per_element), .columns = layer.model_dim},
          .experts = layer.experts,
          .choices = RoutingWidth(layer),
          .gate = layer.gate,
          .router = layer.router};
}

// Rows of tokens as one cell.
SlotRows OneCell(const std::byte* rows, int count) {
  return {.data = const_cast<std::byte*>(rows), .cells = {.rows_per_cell = count}, .address = {}};
}

// The host's weights and gradients on the card.
class HostLayerCopy {
 public:
  HostLayerCopy(CudaDevice& device, ElementType type, const LayerWeightsView& weights,
                const LayerGradientsView& gradients)
      : weights_(device, type, weights) {
    if (!gradients.given) return;
    experts_.emplace(device, weights.experts, gradients.experts);
    shared_.emplace(device, weights.shared, gradients.shared);
  }

  Status Init() {
    RETURN_IF_ERROR(weights_.Init());
    for (std::optional<GradientSums>* sums : {&experts_, &shared_}) {
      if (sums->has_value()) RETURN_IF_ERROR((*sums)->Init());
    }
    return OkStatus();
  }

  DeviceWeights weights() const { return weights_.view(); }
  DeviceGradients gradients() const {
    return experts_ ? DeviceGradients{experts_->view(), shared_->view()} : DeviceGradients();
  }

  void Use(const LayerWeightsView& weights, const LayerGradientsView& gradients) {
    if (!weights.gate.empty()) weights_.Use(weights);
    if (!gradients.given || !experts_) return;
    experts_->Use(gradients.experts);
    shared_->Use(gradients.shared);
  }
  Status TakeWeights(Stream& stream) { return weights_.Refresh(stream); }
  Status GiveGradients(Stream& stream) {
    if (!experts_) return OkStatus();
    RETURN_IF_ERROR(experts_->HandBack(stream));
    return shared_->HandBack(stream);
  }

 private:
  CardWeights weights_;
  std::optional<GradientSums> experts_, shared_;
};

class CudaKernels final : public Kernels {
 public:
  // `copy`: whose memory `weights` and `gradients` are; null: the job's.
  CudaKernels(CudaDevice& device, std::shared_ptr<GroupedGemm> gemm, const Layer& layer, const LayerShard& shard,
              const DeviceWeights& weights, const DeviceGradients& gradients, std::unique_ptr<HostLayerCopy> copy)
      : device_(device),
        layer_(layer),
        gate_(ShapeOf(layer)),
        copy_(std::move(copy)),
        weights_(weights),
        gradients_(gradients),
        gemm_(std::move(gemm)),
        lists_(device),
        counts_(device),
        ffn_(layer, shard.experts.hidden, weights_.experts, *gemm_, lists_),
        shared_ffn_(layer, shard.shared.hidden, weights_.shared, *gemm_, lists_) {}

  Status CheckCodec(Codec codec) const override { return cuda::CheckCodec(codec); }

  void UseHostMemory(const LayerWeightsView& weights, const LayerGradientsView& gradients) override {
    if (copy_ != nullptr) copy_->Use(weights, gradients);
  }
  void UseDeviceMemory(const DeviceWeights& weights) override { weights_ = weights; }
  void UseDeviceMemory(const DeviceGradients& gradients) override { gradients_ = gradients; }
  void AddValues(const float* from, int64_t count, float* to, Stream& stream) override {
    Queue(stream, [&](const Task& task) { return cuda::AddValues(from, count, to, task.on); });
  }
  void TakeWeights(Stream& stream) override {
    if (copy_ == nullptr) return;
    Queue(stream, [&](const Task&) { return copy_->TakeWeights(stream); });
  }

  void GiveGradients(Stream& stream) override {
    if (copy_ == nullptr) return;
    Queue(stream, [&](const Task&) { return copy_->GiveGradients(stream); });
  }

  void Gate(const GateArgs& args, Stream& stream) override {
    Queue(stream, [&](const Task& task) -> Status {
      ASSIGN_OR_RETURN(std::byte* const scratch, task.scratch.Take(GateScratch::Bytes(gate_, args.tokens)));
      return cuda::Gate(gate_, router(), args, GateScratch::At(scratch, gate_, args.tokens), task.on);
    });
  }

  void AssignSlots(const AssignSlotsArgs& args, Stream& stream) override {
    Queue(stream, [&](const Task& task) { return cuda::AssignSlots(gate_, args, task.on); });
  }

  void Dispatch(const TokenRows& tokens, const Routing& routing, const SlotRows& out, Stream& stream) override {
    Queue(stream, [&](const Task& task) { return Scatter(task, tokens, routing, out, weighs_input()); });
  }

  void Encode(Codec codec, const SlotRows& in, std::byte* out, Stream& stream) override {
    Queue(stream, [&](const Task& task) -> Status {
      ASSIGN_OR_RETURN(const PlacedRows rows, Place(task, in));
      return cuda::Encode(codec, gate_.rows, rows, out, task.on);
    });
  }

  void Decode(Codec codec, const std::byte* in, const SlotRows& out, Stream& stream) override {
    Queue(stream, [&](const Task& task) -> Status {
      ASSIGN_OR_RETURN(const PlacedRows rows, Place(task, out));
      return cuda::Decode(codec, gate_.rows, in, rows, task.on);
    });
  }

  void CopyCells(const SlotRows& in, const SlotRows& out, std::span<const CellPair> pairs, Stream& stream) override {
    Queue(stream, [&](const Task& task) -> Status {
      ASSIGN_OR_RETURN(const PlacedRows from, Place(task, in));
      ASSIGN_OR_RETURN(const PlacedRows to, Place(task, out));
      ASSIGN_OR_RETURN(const CellPair* const list, lists_.Find(pairs));
      return cuda::CopyCells(gate_.rows, from, to, list, static_cast<int>(pairs.size()), task.on);
    });
  }

  void SumCells(const SlotRows& in, const SlotRows& out, std::span<const CellPair> pairs, Stream& stream) override {
    Queue(stream, [&](const Task& task) -> Status {
      ASSIGN_OR_RETURN(const PlacedRows from, Place(task, in));
      ASSIGN_OR_RETURN(const PlacedRows to, Place(task, out));
      ASSIGN_OR_RETURN(const CellGroups groups, lists_.FindGroups(pairs));
      return cuda::SumCells(gate_.rows, from, to, groups, task.on);
    });
  }

  void Expert(const SlotRows& in, const SlotRows& out, std::byte* hidden, std::span<const std::vector<CellPair>> pairs,
              Stream& stream) override {
    QueueFfn(stream, pairs, in, out,
             [&](const FfnTask& task) { return ffn_.Forward(task, in.data, hidden, out.data); });
  }

  void SharedExpert(const TokenRows& in, const TokenRows& out, std::byte* hidden, Stream& stream) override {
    QueueShared(stream, in.valid_rows,
                [&](const FfnTask& task) { return shared_ffn_.Forward(task, in.data, hidden, out.data); });
  }

  void Combine(const CombineArgs& args, Stream& stream) override {
    Queue(stream, [&](const Task& task) {
      return Gather(task, OwnBlock(args.slots, args.routing, args.out), args.slots, args.out, !weighs_input(),
                    args.addend);
    });
  }

  void CombineGradient(const TokenRows& out_gradient, const Routing& routing, const SlotRows& slots_gradient,
                       Stream& stream) override {
    Queue(stream,
          [&](const Task& task) { return Scatter(task, out_gradient, routing, slots_gradient, !weighs_input()); });
  }

  void RoutingGradient(const TokenRows& out_gradient, const SlotRows& slots, const Routing& routing, float* gradient,
                       Stream& stream) override {
    Queue(stream, [&](const Task& task) -> Status {
      const RoutedPairs pairs = OwnBlock(slots, routing, out_gradient);
      ASSIGN_OR_RETURN(const TokensAndSlots rows, PlacePairs(task, pairs, out_gradient.data, slots));
      return cuda::RoutingGradient(rows, gradient, task.on);
    });
  }

  void ExpertInputGradient(const ExpertInputGradientArgs& args, Stream& stream) override {
    QueueFfn(stream, args.pairs, args.out_gradient, args.in_gradient, [&](const FfnTask& task) {
      return ffn_.InputGradient(task, args.hidden, args.out_gradient.data, args.hidden_gradient, args.in_gradient.data);
    });
  }

  void SharedInputGradient(const SharedInputGradientArgs& args, Stream& stream) override {
    QueueShared(stream, args.out_gradient.valid_rows, [&](const FfnTask& task) {
      return shared_ffn_.InputGradient(task, args.hidden, args.out_gradient.data, args.hidden_gradient,
                                       args.in_gradient);
    });
  }

  void ExpertWeightGradient(const ExpertWeightGradientArgs& args, Stream& stream) override {
    QueueFfn(stream, args.pairs, args.in, args.in, [&](const FfnTask& task) {
      return ffn_.WeightGradient(task, {args.in.data, args.hidden, args.out_gradient, args.hidden_gradient}, args.scale,
                                 args.is_first, gradients_.experts);
    });
  }

  void SharedWeightGradient(const SharedWeightGradientArgs& args, Stream& stream) override {
    QueueShared(stream, args.in.valid_rows, [&](const FfnTask& task) {
      return shared_ffn_.WeightGradient(task, {args.in.data, args.hidden, args.out_gradient, args.hidden_gradient},
                                        /*scale=*/1, /*is_first=*/true, gradients_.shared);
    });
  }

  void DispatchGradient(const SlotRows& slots_gradient, const Routing& routing, const TokenRows& tokens_gradient,
                        Stream& stream) override {
    Queue(stream, [&](const Task& task) {
      return Gather(task, AllBlocks(routing, tokens_gradient), slots_gradient, tokens_gradient, /*weighted=*/false,
                    /*addend=*/nullptr);
    });
  }

  void GateGradient(const GateGradientArgs& args, Stream& stream) override {
    Queue(stream, [&](const Task& task) -> Status {
      ASSIGN_OR_RETURN(std::byte* const scratch, task.scratch.Take(GateGradientScratch::Bytes(gate_, args.tokens)));
      return cuda::GateGradient(gate_, WeightsOf(layer_), {layer_.aux_loss_coefficient, layer_.z_loss_coefficient},
                                router(), args, GateGradientScratch::At(scratch, gate_, args.tokens), *gemm_, task.on);
    });
  }

  void SplitByNode(const SplitByNodeArgs& args, Stream& stream) override {
    Queue(stream, [&](const Task& task) -> Status {
      ASSIGN_OR_RETURN(const NodeScratch scratch, TakeNodes(task, args.nodes, args.tokens.valid_rows, /*experts=*/0));
      return cuda::SplitByNode(gate_.choices, args, scratch, task.on);
    });
  }

  void RelayRouting(const RelayRoutingArgs& args, Stream& stream) override {
    Queue(stream, [&](const Task& task) -> Status {
      ASSIGN_OR_RETURN(const NodeScratch scratch, TakeNodes(task, args.nodes, args.valid_rows, args.experts_per_node));
      return cuda::RelayRouting(gate_.choices, args, scratch, task.on);
    });
  }

  void SumOverNodes(const SlotRows& rows, const Routing& node_routing, const TokenRows& tokens, float* gradient,
                    Stream& stream) override {
    Queue(stream, [&](const Task& task) -> Status {
      const RoutedPairs pairs = AllBlocks(node_routing, tokens);
      ASSIGN_OR_RETURN(const TokensAndSlots placed, PlacePairs(task, pairs, /*tokens=*/nullptr, rows));
      return cuda::SumOverNodes(pairs, placed.places, rows.data, gradient, task.on);
    });
  }

 private:
  DeviceGate router() const { return {weights_.gate, weights_.gate_bias, weights_.correction_bias}; }
  // Whether weights multiply what experts get, rather than what they give.
  bool weighs_input() const { return layer_.router.weighs_input; }

  struct Task {
    Scratch& scratch;
    cudaStream_t on;
  };

  // body(task) -> Status. An error is the stream's task's.
  template <typename Body>
  void Queue(Stream& stream, Body body) {
    if (device_.failed()) return;
    Scratch& scratch = scratch_.try_emplace(&stream, device_).first->second;
    scratch.Begin();
    Report(stream, body(Task{scratch, StreamOf(stream)}));
  }

  // body(task) -> Status, with rows that the host knows, too.
  template <typename Body>
  void QueueFfn(Stream& stream, std::span<const std::vector<CellPair>> pairs, const SlotRows& in, const SlotRows& out,
                Body body) {
    const bool counted = in.cells.counts != nullptr || out.cells.counts != nullptr;
    if (counted && device_.capturing()) return device_.RefuseCapture("sizes that the host has to know");
    Queue(stream, [&](const Task& task) -> Status {
      ASSIGN_OR_RETURN(const HostCounts::Rows on_host, counts_.Read({.cells = in.cells}, {.cells = out.cells}, stream));
      ASSIGN_OR_RETURN(const PlacedRows from, Place(task, in));
      ASSIGN_OR_RETURN(const PlacedRows to, Place(task, out));
      return body(FfnTask{.pairs = pairs,
                          .from = CellsOf(from, on_host.send.cells),
                          .to = CellsOf(to, on_host.recv.cells),
                          .scratch = task.scratch,
                          .stream = task.on});
    });
  }
  static FfnCells CellsOf(const PlacedRows& placed, const CellLayout& on_host) {
    return {.placed = placed, .on_host = on_host, .first_rows = FirstRows(on_host).Now()};
  }

  template <typename Body>
  void QueueShared(Stream& stream, int rows, Body body) {
    const SlotRows cell = OneCell(/*rows=*/nullptr, rows);
    QueueFfn(stream, one_cell_, cell, cell, body);
  }

  StatusOr<PlacedRows> Place(const Task& task, const SlotRows& slots) {
    PlacedRows placed = {.data = slots.data, .cells = slots.cells};
    if (slots.cells.counts == nullptr) return placed;
    ASSIGN_OR_RETURN(int64_t* const first_rows, task.scratch.TakeValues<int64_t>(CellCount(slots.cells) + 1));
    RETURN_IF_ERROR(FindFirstRows(slots.cells, first_rows, task.on));
    placed.first_rows = first_rows;
    return placed;
  }

  StatusOr<NodeScratch> TakeNodes(const Task& task, int nodes, int rows, int experts) {
    ASSIGN_OR_RETURN(std::byte* const memory, task.scratch.Take(NodeScratch::Bytes(nodes, rows, experts)));
    return NodeScratch::At(memory, nodes, rows, experts);
  }

  RoutedPairs AllBlocks(const Routing& routing, const TokenRows& tokens) const {
    return {.routing = routing,
            .choices = gate_.choices,
            .blocks = tokens.blocks,
            .rows_per_block = tokens.rows_per_block,
            .valid_rows = tokens.valid_rows};
  }
  // Of a routing of all blocks the one that `tokens` are.
  RoutedPairs OwnBlock(const SlotRows& slots, const Routing& routing, const TokenRows& tokens) const {
    RoutedPairs pairs = AllBlocks(routing, tokens);
    pairs.first_block = slots.address.own_block;
    pairs.blocks = 1;
    return pairs;
  }

  StatusOr<TokensAndSlots> PlacePairs(const Task& task, const RoutedPairs& pairs, std::byte* tokens,
                                      const SlotRows& slots, int32_t* sources = nullptr) {
    TokensAndSlots rows = {.shape = gate_.rows, .pairs = pairs, .sources = sources, .tokens = tokens};
    ASSIGN_OR_RETURN(rows.slots, Place(task, slots));
    ASSIGN_OR_RETURN(int32_t* const places, task.scratch.TakeValues<int32_t>(pairs.Pairs()));
    RETURN_IF_ERROR(FindPlaces(pairs, rows.slots, slots.address, places, sources, task.on));
    rows.places = places;
    return rows;
  }

  Status Scatter(const Task& task, const TokenRows& tokens, const Routing& routing, const SlotRows& slots,
                 bool weighted) {
    ASSIGN_OR_RETURN(int32_t* const sources, task.scratch.TakeValues<int32_t>(MostRows(slots.cells)));
    ASSIGN_OR_RETURN(const TokensAndSlots rows,
                     PlacePairs(task, AllBlocks(routing, tokens), tokens.data, slots, sources));
    return ScatterRows(rows, weighted, task.on);
  }

  Status Gather(const Task& task, const RoutedPairs& pairs, const SlotRows& slots, const TokenRows& tokens,
                bool weighted, const std::byte* addend) {
    ASSIGN_OR_RETURN(const TokensAndSlots rows, PlacePairs(task, pairs, tokens.data, slots));
    return GatherRows(rows, weighted, addend, task.on);
  }

  CudaDevice& device_;
  const Layer layer_;
  const GateShape gate_;
  const std::unique_ptr<HostLayerCopy> copy_;
  DeviceWeights weights_;
  DeviceGradients gradients_;
  const std::shared_ptr<GroupedGemm> gemm_;  // Shared by the layers of a rank.
  CellLists lists_;
  HostCounts counts_;
  CudaFfn ffn_, shared_ffn_;
  std::map<const Stream*, Scratch> scratch_;
  const std::vector<std::vector<CellPair>> one_cell_ = {{{0, 0}}};
};

}  // namespace

Status CheckLayer(const Layer& layer) {
  if (layer.expert_kind != ExpertKind::kFfn) {
    return Unimplemented(StrCat("layer.expertKind: found ", Name(layer.expert_kind),
                                ", which a program adds, expected ",
                                "FFN, whose functions have CUDA kernels; use the host backend for others"));
  }
  return CheckGate(ShapeOf(layer));
}

StatusOr<std::shared_ptr<GroupedGemm>> CudaKernelMaker::Gemm() {
  if (gemm_ == nullptr) {
    ASSIGN_OR_RETURN(gemm_, GroupedGemm::Make());
  }
  return gemm_;
}

StatusOr<std::unique_ptr<Kernels>> CudaKernelMaker::Make(const Layer& layer, const LayerWeightsView& weights,
                                                         const LayerGradientsView& gradients) {
  RETURN_IF_ERROR(CheckLayer(layer));
  ASSIGN_OR_RETURN(std::shared_ptr<GroupedGemm> gemm, Gemm());
  auto copy = std::make_unique<HostLayerCopy>(device_, ElementTypeOf(layer.bytes_per_element), weights, gradients);
  RETURN_IF_ERROR(copy->Init());
  const LayerShard shard = {.experts = weights.experts.shard, .shared = weights.shared.shard};
  const DeviceWeights on_card = copy->weights();
  const DeviceGradients gradients_on_card = copy->gradients();
  return std::make_unique<CudaKernels>(device_, std::move(gemm), layer, shard, on_card, gradients_on_card,
                                       std::move(copy));
}

StatusOr<std::unique_ptr<Kernels>> CudaKernelMaker::Make(const Layer& layer, const LayerShard& shard,
                                                         const DeviceWeights& weights,
                                                         const DeviceGradients* gradients) {
  RETURN_IF_ERROR(CheckLayer(layer));
  ASSIGN_OR_RETURN(std::shared_ptr<GroupedGemm> gemm, Gemm());
  return std::make_unique<CudaKernels>(device_, std::move(gemm), layer, shard, weights,
                                       gradients == nullptr ? DeviceGradients() : *gradients, /*copy=*/nullptr);
}

}  // namespace moeplan::executor::cuda
