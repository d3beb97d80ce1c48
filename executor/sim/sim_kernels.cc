#include "executor/sim/sim_kernels.h"

#include <utility>

#include "executor/codec/codec.h"
#include "executor/host/host_kernels.h"
#include "executor/host/host_stream.h"
#include "executor/sim/balanced_gate.h"
#include "executor/sim/kernel_sizes.h"
#include "executor/virtual/virtual_device.h"

namespace moeplan::executor {
namespace {

class SimKernels final : public Kernels {
 public:
  // `host` computes the values; null without data.
  SimKernels(const SimulatedGpu& gpu, const Layer& layer, const LayerWeightsView& weights,
             std::unique_ptr<Kernels> host)
      : sizes_(gpu, layer, weights.experts.shard, weights.shared.shard), gate_(layer), host_(std::move(host)) {}

  Status CheckCodec(Codec codec) const override { return executor::CheckCodec(codec); }
  void UseHostMemory(const LayerWeightsView& weights, const LayerGradientsView& gradients) override {
    if (host_ != nullptr) host_->UseHostMemory(weights, gradients);
  }

  void AddValues(const float* from, int64_t count, float* to, Stream& stream) override {
    Play(
        stream, [=] { return WorkSize{.memory_bytes = 3.0 * sizeof(float) * count}; }, &Kernels::AddValues, from, count,
        to);
  }
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
    Play(
        stream, [=, this] { return sizes_.Move(out.cells); }, &Kernels::Dispatch, tokens, routing, out);
  }
  void Encode(Codec codec, const SlotRows& in, std::byte* out, Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.Code(codec, in.cells); }, &Kernels::Encode, codec, in, out);
  }
  void Decode(Codec codec, const std::byte* in, const SlotRows& out, Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.Code(codec, out.cells); }, &Kernels::Decode, codec, in, out);
  }
  void CopyCells(const SlotRows& in, const SlotRows& out, std::span<const CellPair> pairs, Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.Move(in.cells, pairs); }, &Kernels::CopyCells, in, out, pairs);
  }
  void Expert(const SlotRows& in, const SlotRows& out, std::byte* hidden, std::span<const std::vector<CellPair>> pairs,
              Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.Experts(in.cells, pairs); }, &Kernels::Expert, in, out, hidden, pairs);
  }
  void SharedExpert(const TokenRows& in, const TokenRows& out, std::byte* hidden, Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.SharedExpert(in); }, &Kernels::SharedExpert, in, out, hidden);
  }
  void SumCells(const SlotRows& in, const SlotRows& out, std::span<const CellPair> pairs, Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.Sum(in.cells, out.cells); }, &Kernels::SumCells, in, out, pairs);
  }
  void Combine(const CombineArgs& args, Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.Merge(args.slots.cells, args.out, args.addend == nullptr ? 0 : 1); },
        &Kernels::Combine, args);
  }
  void CombineGradient(const TokenRows& out_gradient, const Routing& routing, const SlotRows& slots_gradient,
                       Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.Move(slots_gradient.cells); }, &Kernels::CombineGradient, out_gradient,
        routing, slots_gradient);
  }
  void RoutingGradient(const TokenRows& out_gradient, const SlotRows& slots, const Routing& routing, float* gradient,
                       Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.Merge(slots.cells, out_gradient, /*more=*/0); }, &Kernels::RoutingGradient,
        out_gradient, slots, routing, gradient);
  }
  void ExpertInputGradient(const ExpertInputGradientArgs& args, Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.Experts(args.out_gradient.cells, args.pairs); },
        &Kernels::ExpertInputGradient, args);
  }
  void SharedInputGradient(const SharedInputGradientArgs& args, Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.SharedExpert(args.out_gradient); }, &Kernels::SharedInputGradient, args);
  }
  void ExpertWeightGradient(const ExpertWeightGradientArgs& args, Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.ExpertWeightGradients(args.in.cells, args.pairs); },
        &Kernels::ExpertWeightGradient, args);
  }
  void SharedWeightGradient(const SharedWeightGradientArgs& args, Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.SharedWeightGradient(args.in); }, &Kernels::SharedWeightGradient, args);
  }
  void DispatchGradient(const SlotRows& slots_gradient, const Routing& routing, const TokenRows& tokens_gradient,
                        Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.Merge(slots_gradient.cells, tokens_gradient, /*more=*/0); },
        &Kernels::DispatchGradient, slots_gradient, routing, tokens_gradient);
  }
  void GateGradient(const GateGradientArgs& args, Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.GateGradient(args.tokens); }, &Kernels::GateGradient, args);
  }
  void SplitByNode(const SplitByNodeArgs& args, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.SplitByNode(args); });
    if (host_ != nullptr) return host_->SplitByNode(args, stream);
    StandIn(stream, [=, this, &machine = MachineOf(stream)] {
      SetHoldsData(machine, args.node_counts);
      gate_.SplitByNode(args);
    });
  }
  void RelayRouting(const RelayRoutingArgs& args, Stream& stream) override {
    SetWorkSize(stream, [=, this] { return sizes_.RelayRouting(args); });
    if (host_ != nullptr) return host_->RelayRouting(args, stream);
    StandIn(stream, [=, this, &machine = MachineOf(stream)] {
      SetHoldsData(machine, args.row_counts);
      SetHoldsData(machine, args.pair_counts);
      gate_.RelayRouting(args);
    });
  }
  void SumOverNodes(const SlotRows& rows, const Routing& node_routing, const TokenRows& tokens, float* gradient,
                    Stream& stream) override {
    Play(
        stream, [=, this] { return sizes_.SumOverNodes(rows.cells, tokens); }, &Kernels::SumOverNodes, rows,
        node_routing, tokens, gradient);
  }

 private:
  static VirtualMachine& MachineOf(Stream& stream) { return QueueOf(stream).device().machine(); }

  template <typename T>
  static void SetHoldsData(VirtualMachine& machine, const T* place) {
    if (place != nullptr) machine.SetHoldsData(reinterpret_cast<const std::byte*>(place));
  }

  // Queues a kernel that takes what `size` answers when the stream gets there: the host's, or nothing without data.
  template <typename Size, typename... Parameters, typename... Arguments>
  void Play(Stream& stream, Size size, void (Kernels::*kernel)(Parameters...), const Arguments&... arguments) {
    SetWorkSize(stream, std::move(size));
    if (host_ != nullptr) return (host_.get()->*kernel)(arguments..., stream);
    StandIn(stream, [] {});
  }

  // Queues what the host reads of a kernel's values, where there is no data.
  static void StandIn(Stream& stream, std::function<void()> work) {
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

StatusOr<std::unique_ptr<Kernels>> MakeSimKernels(const SimulatedGpu& gpu, bool data, const Layer& layer,
                                                  const LayerWeightsView& weights,
                                                  const LayerGradientsView& gradients) {
  std::unique_ptr<Kernels> host;
  if (data) {
    ASSIGN_OR_RETURN(host, MakeHostKernels(layer, weights, gradients));
  }
  return std::make_unique<SimKernels>(gpu, layer, weights, std::move(host));
}

void EnqueueStepKernel(const SimulatedGpu& gpu, const KernelKey& key, double size, Stream& stream) {
  SetWorkSize(stream, [work = StepKernelSize(gpu, key, size)] { return work; });
  HostStream::Of(stream).Enqueue([] { return OkStatus(); });
}

void EnqueueTimedKernel(double time_s, Stream& stream) {
  SetWorkSize(stream, [time_s] { return WorkSize{.compute_s = time_s}; });
  HostStream::Of(stream).Enqueue([] { return OkStatus(); });
}

}  // namespace moeplan::executor
