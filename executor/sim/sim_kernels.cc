#include "executor/sim/sim_kernels.h"

#include <utility>

#include "executor/codec/codec.h"
#include "executor/host/host_kernels.h"
#include "executor/host/host_stream.h"
#include "executor/sim/balanced_gate.h"
#include "executor/sim/kernel_sizes.h"
#include "executor/virtual/virtual_device.h"

namespace moeplan {
namespace {

class SimKernels final : public Kernels {
 public:
  SimKernels(const SimulatedGpu& gpu, bool data, const Layer& layer, const LayerWeights& weights,
             LayerGradients* gradients)
      : sizes_(gpu, layer, weights.experts.shard, weights.shared.shard),
        gate_(layer),
        host_(data ? MakeHostKernels(layer, weights, gradients) : nullptr) {}

  Status CheckCodec(Codec codec) const override { return moeplan::CheckCodec(codec); }

  void Gate(const GateArgs& args, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.Gate(args.tokens); });
    if (host_ != nullptr) return host_->Gate(args, stream);
    StandIn(stream, [=, this, &machine = MachineOf(stream)] {
      SetHoldsData(machine, args.counts);
      SetHoldsData(machine, args.sums.tokens);
      gate_.Route(args);
    });
  }
  void AssignSlots(const AssignSlotsArgs& args, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.AssignSlots(args); });
    if (host_ != nullptr) return host_->AssignSlots(args, stream);
    StandIn(stream, [=, this, &machine = MachineOf(stream)] {
      SetHoldsData(machine, args.send_counts);
      SetHoldsData(machine, args.sums.tokens);
      gate_.AssignSlots(args);
    });
  }
  void Dispatch(const TokenRows& tokens, const Routing& routing, const SlotRows& out, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.Move(out.cells); });
    if (host_ != nullptr) return host_->Dispatch(tokens, routing, out, stream);
    StandIn(stream);
  }
  void Encode(Codec codec, const SlotRows& in, std::byte* out, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.Code(codec, in.cells); });
    if (host_ != nullptr) return host_->Encode(codec, in, out, stream);
    StandIn(stream);
  }
  void Decode(Codec codec, const std::byte* in, const SlotRows& out, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.Code(codec, out.cells); });
    if (host_ != nullptr) return host_->Decode(codec, in, out, stream);
    StandIn(stream);
  }
  void CopyCells(const SlotRows& in, const SlotRows& out, std::span<const CellPair> pairs, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.Move(in.cells, pairs); });
    if (host_ != nullptr) return host_->CopyCells(in, out, pairs, stream);
    StandIn(stream);
  }
  void Expert(const SlotRows& in, const SlotRows& out, std::byte* hidden, std::span<const std::vector<CellPair>> pairs,
              Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.Experts(in.cells, pairs); });
    if (host_ != nullptr) return host_->Expert(in, out, hidden, pairs, stream);
    StandIn(stream);
  }
  void SharedExpert(const TokenRows& in, const TokenRows& out, std::byte* hidden, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.SharedExpert(in); });
    if (host_ != nullptr) return host_->SharedExpert(in, out, hidden, stream);
    StandIn(stream);
  }
  void SumCells(const SlotRows& in, const SlotRows& out, std::span<const CellPair> pairs, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.Sum(in.cells, out.cells); });
    if (host_ != nullptr) return host_->SumCells(in, out, pairs, stream);
    StandIn(stream);
  }
  void Combine(const CombineArgs& args, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.Merge(args.slots.cells, args.out, args.addend == nullptr ? 0 : 1); });
    if (host_ != nullptr) return host_->Combine(args, stream);
    StandIn(stream);
  }
  void CombineGradient(const TokenRows& out_gradient, const Routing& routing, const SlotRows& slots_gradient,
                       Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.Move(slots_gradient.cells); });
    if (host_ != nullptr) return host_->CombineGradient(out_gradient, routing, slots_gradient, stream);
    StandIn(stream);
  }
  void RoutingGradient(const TokenRows& out_gradient, const SlotRows& slots, const Routing& routing, float* gradient,
                       Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.Merge(slots.cells, out_gradient, /*more=*/0); });
    if (host_ != nullptr) return host_->RoutingGradient(out_gradient, slots, routing, gradient, stream);
    StandIn(stream);
  }
  void ExpertInputGradient(const ExpertInputGradientArgs& args, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.Experts(args.out_gradient.cells, args.pairs); });
    if (host_ != nullptr) return host_->ExpertInputGradient(args, stream);
    StandIn(stream);
  }
  void SharedInputGradient(const SharedInputGradientArgs& args, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.SharedExpert(args.out_gradient); });
    if (host_ != nullptr) return host_->SharedInputGradient(args, stream);
    StandIn(stream);
  }
  void ExpertWeightGradient(const ExpertWeightGradientArgs& args, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.ExpertWeightGradients(args.in.cells, args.pairs); });
    if (host_ != nullptr) return host_->ExpertWeightGradient(args, stream);
    StandIn(stream);
  }
  void SharedWeightGradient(const SharedWeightGradientArgs& args, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.SharedWeightGradient(args.in); });
    if (host_ != nullptr) return host_->SharedWeightGradient(args, stream);
    StandIn(stream);
  }
  void DispatchGradient(const SlotRows& slots_gradient, const Routing& routing, const TokenRows& tokens_gradient,
                        Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.Merge(slots_gradient.cells, tokens_gradient, /*more=*/0); });
    if (host_ != nullptr) return host_->DispatchGradient(slots_gradient, routing, tokens_gradient, stream);
    StandIn(stream);
  }
  void GateGradient(const GateGradientArgs& args, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.GateGradient(args.tokens); });
    if (host_ != nullptr) return host_->GateGradient(args, stream);
    StandIn(stream);
  }

 private:
  static VirtualMachine& MachineOf(Stream& stream) { return QueueOf(stream).device().machine(); }

  template <typename T>
  static void SetHoldsData(VirtualMachine& machine, const T* place) {
    if (place != nullptr) machine.SetHoldsData(reinterpret_cast<const std::byte*>(place));
  }

  // What runs where there is no data.
  static void StandIn(
      Stream& stream, std::function<void()> work = [] {}) {
    HostStream::Of(stream).Enqueue([work = std::move(work)] {
      work();
      return OkStatus();
    });
  }

  const KernelSizes sizes_;
  BalancedGate gate_;
  const std::unique_ptr<Kernels> host_;  // Null without data.
};

}  // namespace

std::unique_ptr<Kernels> MakeSimKernels(const SimulatedGpu& gpu, bool data, const Layer& layer,
                                        const LayerWeights& weights, LayerGradients* gradients) {
  return std::make_unique<SimKernels>(gpu, data, layer, weights, gradients);
}

}  // namespace moeplan
