#include "agent/operation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "agent/operation_buffers.h"
#include "executor/codec/codec.h"
#include "executor/host/elements.h"
#include "models/all_to_all/algorithm.h"
#include "models/cost/operation.h"
#include "models/text.h"

namespace moeplan::agent {
namespace {

class CollectiveOperation final : public Operation {
 public:
  CollectiveOperation(const CollectiveKey& key, const CollectiveContext& context)
      : key_(key), context_(context), group_(context.group), gather_(context.gather) {}

  Status Allocate(double bytes) {
    executor::Device& device = context_.device;
    const CollectiveBuffers buffers = BuffersOf(key_, bytes, group_.rank());
    bytes_ = buffers.bytes;
    ASSIGN_OR_RETURN(send_, device.Allocate(bytes_));
    ASSIGN_OR_RETURN(receive_, device.Allocate(bytes_));
    if (gather_ != nullptr) {
      ASSIGN_OR_RETURN(gathered_, device.Allocate(buffers.gathered_bytes));
    }
    if (context_.teams == nullptr) return OkStatus();
    ASSIGN_OR_RETURN(scratch_, device.Allocate(buffers.scratch_bytes));
    return PreparePhases();
  }

  void Enqueue(executor::Stream& stream) override {
    const size_t share = bytes_ / group_.size();
    const std::span<std::byte> send(send_.data(), bytes_), receive(receive_.data(), bytes_);
    switch (key_.collective) {
      case Collective::kAllToAll:
        if (phased_ != nullptr) return phased_->Enqueue("measure", stream);
        group_.AllToAll(Peers(send_), Peers(receive_), stream);
        return;
      case Collective::kAllGather: group_.AllGather(send.first(share), receive, stream); return;
      case Collective::kReduceScatter:
        group_.ReduceScatter(send, receive.first(share), executor::ElementType::kFloat32, stream);
        return;
      case Collective::kAllReduce: group_.AllReduce(send, receive, executor::ElementType::kFloat32, stream); return;
      case Collective::kAllToAllAllGather:
        group_.AllToAllAllGather(Peers(send_), Peers(receive_), key_.shards, {gathered_.data(), gathered_.bytes()},
                                 executor::ElementType::kFloat32, *gather_, stream);
        return;
    }
  }

 private:
  executor::PeerRows Peers(const executor::DeviceMemory& memory) const {
    return {.data = memory.data(),
            .row_bytes = bytes_ / group_.size(),
            .cells = {.blocks = group_.size(), .cells_per_block = 1, .rows_per_cell = 1}};
  }

  Status PreparePhases() {
    const executor::PhasedExchange exchange = {.algorithm = key_.algorithm,
                                               .group = key_.group,
                                               .rank = group_.rank(),
                                               .send = Peers(send_),
                                               .recv = Peers(receive_),
                                               .scratch = {scratch_.data(), scratch_.bytes()}};
    ASSIGN_OR_RETURN(
        phased_, executor::PhasedAllToAll::Prepare(exchange, context_.device, *context_.teams, *context_.inside_nodes));
    return OkStatus();
  }

  CollectiveKey key_;
  CollectiveContext context_;
  executor::Communicator& group_;
  executor::Communicator* gather_;
  size_t bytes_ = 0;
  executor::DeviceMemory send_, receive_, gathered_, scratch_;
  std::unique_ptr<executor::PhasedAllToAll> phased_;  // Of an all-to-all that is not DIRECT.
};

// The kernels of one rank on made-up tokens: rows spread evenly over the rank's experts.
class KernelOperation final : public Operation {
 public:
  KernelOperation(const KernelKey& key, const Workload& workload, const executor::Rank& rank)
      : key_(key),
        kernel_(key.kernel),
        layer_(workload.layer),
        shared_(IsSharedExpert(key, workload)),
        weights_(WeightsOn(rank, layer_, NeededShard(kernel_, workload), /*seed=*/1)),
        gradients_(executor::ZeroGradients(weights_)) {}

  Status Prepare(double size, const Workload& workload, executor::Rank& rank) {
    ASSIGN_OR_RETURN(kernels_, rank.runtime().make_kernels()(layer_, weights_, &gradients_));
    RETURN_IF_ERROR(kernels_->CheckCodec(CodecOf(kernel_)));
    RETURN_IF_ERROR(Allocate(size, workload, rank.device()));
    pairs_.resize(experts_);
    for (int expert = 0; expert < experts_; ++expert) pairs_[expert] = {{expert, expert}};
    return rank.computes() ? Fill(rank.device()) : OkStatus();
  }

  void Enqueue(executor::Stream& stream) override {
    switch (BuiltInLike(kernel_)) {
      case Kernel::kExpertGemm: return EnqueueExpert(/*hidden=*/nullptr, stream);
      case Kernel::kExpertInputGradient: return EnqueueInputGradient(stream);
      case Kernel::kExpertWeightGradient: return EnqueueWeightGradient(stream);
      case Kernel::kGate:
        kernels_->Gate({.tokens = Rows(token_data_, tokens_),
                        .routing = RoutingHere(),
                        .capacity = std::max(1, tokens_ * layer_.top_k / layer_.experts),
                        .sums = executor::RouterSums::At(reinterpret_cast<double*>(sums_.data()), layer_.experts)},
                       stream);
        return;
      case Kernel::kPermute:
        // There and back: the cost of moving slots is the mean of the two.
        kernels_->Dispatch(Rows(token_data_, tokens_), RoutingHere(), Slots(slots_), stream);
        kernels_->Combine({.slots = Slots(slots_), .routing = RoutingHere(), .out = Rows(token_data_, tokens_)},
                          stream);
        return;
      default: {
        if (const Codec codec = CodecOf(kernel_); codec != Codec::kNone)
          return EnqueueCodec(codec, EncodeKernel(codec) == kernel_, stream);
        executor::SlotRows from = Slots(slots_), to = Slots(output_);
        from.cells = to.cells = {.blocks = 1, .cells_per_block = 1, .rows_per_cell = rows_};
        kernels_->CopyCells(from, to, whole_, stream);
      }
    }
  }

  double share() const override { return kernel_ == Kernel::kPermute ? 0.5 : 1; }

 private:
  Status Allocate(double size, const Workload& workload, executor::Device& device) {
    if (RowsOf(key_, size, workload) > kMostRows)
      return InvalidInput(StrCat(Name(kernel_), ": found size ", size, ", expected one that fits in memory"));
    const KernelBuffers buffers = BuffersOf(key_, size, workload);
    experts_ = buffers.experts;
    rows_per_expert_ = buffers.rows_per_expert;
    rows_ = buffers.rows;
    tokens_ = buffers.tokens;
    ASSIGN_OR_RETURN(slots_, device.Allocate(buffers.slot_bytes));
    ASSIGN_OR_RETURN(output_, device.Allocate(buffers.output_bytes));
    if (buffers.hidden_bytes > 0) {
      ASSIGN_OR_RETURN(hidden_, device.Allocate(buffers.hidden_bytes));
      ASSIGN_OR_RETURN(hidden_gradient_, device.Allocate(buffers.hidden_bytes));
    }
    ASSIGN_OR_RETURN(token_data_, device.Allocate(buffers.token_bytes));
    ASSIGN_OR_RETURN(routing_, device.Allocate(buffers.routing_bytes));
    ASSIGN_OR_RETURN(sums_, device.Allocate(buffers.sum_bytes));
    return OkStatus();
  }

  static executor::LayerShard NeededShard(Kernel kernel, const Workload& workload) {
    executor::LayerShard shard = executor::ShardOf(workload.layer, workload.layout, 0);
    if (!CountsFlops(kernel)) shard = {};
    return shard;
  }

  void EnqueueExpert(std::byte* hidden, executor::Stream& stream) {
    if (shared_) {
      kernels_->SharedExpert(Rows(slots_, rows_), Rows(output_, rows_), hidden, stream);
    } else {
      kernels_->Expert(Slots(slots_), Slots(output_), hidden, pairs_, stream);
    }
  }

  // What is measured reads what a layer would have left: the slope of the nonlinearity at zero, say, takes a fraction
  // of the time that it takes elsewhere, and codes that no encoder made may not decode.
  Status Fill(executor::Device& device) {
    const std::unique_ptr<executor::Stream> stream = device.MakeStream("FILL", executor::StreamPriority::kNormal);
    device.Label(*stream, "fill");
    const std::vector<std::byte> rows = MakeRows(std::max(tokens_, rows_)), routing = MakeRouting();
    device.Copy(token_data_.data(), rows.data(), token_data_.bytes(), *stream);
    device.Copy(slots_.data(), rows.data(), slots_.bytes(), *stream);
    device.Copy(routing_.data(), routing.data(), routing.size(), *stream);
    kernels_->TakeWeights(*stream);
    if (hidden_.bytes() > 0) EnqueueExpert(hidden_.data(), *stream);
    if (const Codec codec = CodecOf(kernel_); codec != Codec::kNone) EnqueueCodec(codec, /*encode=*/true, *stream);
    return device.Synchronize();
  }

  // What comes back has the values of slots_: products take as long whatever they are.
  void EnqueueInputGradient(executor::Stream& stream) {
    if (shared_) {
      kernels_->SharedInputGradient({.out_gradient = Rows(slots_, rows_),
                                     .hidden = hidden_.data(),
                                     .hidden_gradient = hidden_gradient_.data(),
                                     .in_gradient = output_.data()},
                                    stream);
    } else {
      kernels_->ExpertInputGradient({.out_gradient = Slots(slots_),
                                     .in_gradient = Slots(output_),
                                     .hidden = hidden_.data(),
                                     .hidden_gradient = hidden_gradient_.data(),
                                     .pairs = pairs_},
                                    stream);
    }
  }

  void EnqueueWeightGradient(executor::Stream& stream) {
    if (shared_) {
      kernels_->SharedWeightGradient({.in = Rows(slots_, rows_),
                                      .hidden = hidden_.data(),
                                      .out_gradient = slots_.data(),
                                      .hidden_gradient = hidden_gradient_.data()},
                                     stream);
    } else {
      kernels_->ExpertWeightGradient({.in = Slots(slots_),
                                      .hidden = hidden_.data(),
                                      .out_gradient = slots_.data(),
                                      .hidden_gradient = hidden_gradient_.data(),
                                      .pairs = pairs_},
                                     stream);
    }
  }

  void EnqueueCodec(Codec codec, bool encode, executor::Stream& stream) {
    executor::SlotRows rows = Slots(slots_);
    rows.cells = {.blocks = 1, .cells_per_block = 1, .rows_per_cell = rows_};
    if (encode) {
      kernels_->Encode(codec, rows, output_.data(), stream);
    } else {
      kernels_->Decode(codec, output_.data(), rows, stream);
    }
  }

  // Values as a layer sees them: the nonlinearity's time depends on them. They begin again after a while.
  std::vector<std::byte> MakeRows(int count) const {
    constexpr int kDifferentRows = 4096;
    const executor::ElementType type = executor::ElementTypeOf(layer_.bytes_per_element);
    const size_t row_bytes = static_cast<size_t>(layer_.model_dim) * executor::BytesOf(type);
    Layer made = layer_;
    made.batch = 1;
    made.sequence_length = std::min(count, kDifferentRows);
    const std::vector<float> values = executor::MakeInput(made, {}, /*batch=*/0, /*seed=*/1);
    std::vector<std::byte> rows(count * row_bytes);
    executor::Store(values.data(), type, values.size(), rows.data());
    for (size_t done = made.sequence_length * row_bytes; done < rows.size();) {
      const size_t next = std::min(done, rows.size() - done);
      std::memcpy(rows.data() + done, rows.data(), next);
      done += next;
    }
    return rows;
  }

  std::vector<std::byte> MakeRouting() const {
    std::vector<std::byte> bytes(executor::Routing::Bytes(Pairs()));
    const executor::Routing routing = executor::Routing::At(bytes.data(), Pairs());
    for (int pair = 0; pair < static_cast<int>(Pairs()); ++pair) {
      routing.expert[pair] = pair % layer_.experts;
      const int slot = pair / layer_.experts;
      routing.slot[pair] = slot < rows_per_expert_ ? slot : -1;
      routing.weight[pair] = 0.5F;
    }
    return bytes;
  }

  static executor::TokenRows Rows(const executor::DeviceMemory& memory, int rows) {
    return {.data = memory.data(), .rows_per_block = rows, .valid_rows = rows};
  }
  size_t Pairs() const { return static_cast<size_t>(tokens_) * RoutingWidth(layer_); }
  executor::Routing RoutingHere() const { return executor::Routing::At(routing_.data(), Pairs()); }
  executor::SlotRows Slots(const executor::DeviceMemory& memory) const {
    return {.data = memory.data(),
            .cells = {.blocks = 1, .cells_per_block = experts_, .rows_per_cell = rows_per_expert_},
            .address = {.experts_per_rank = layer_.experts, .expert_stride = 1}};
  }

  KernelKey key_;
  Kernel kernel_;
  Layer layer_;
  bool shared_;
  executor::LayerWeights weights_;
  executor::LayerGradients gradients_;
  std::unique_ptr<executor::Kernels> kernels_;
  int experts_ = 1, rows_per_expert_ = 1, rows_ = 1, tokens_ = 1;
  executor::DeviceMemory hidden_, hidden_gradient_;
  executor::DeviceMemory slots_, output_, token_data_, routing_, sums_;
  std::vector<std::vector<executor::CellPair>> pairs_;
  const std::vector<executor::CellPair> whole_ = {{0, 0}};
};

class StepKernelOperation final : public Operation {
 public:
  explicit StepKernelOperation(std::function<void(executor::Stream&)> enqueue) : enqueue_(std::move(enqueue)) {}
  void Enqueue(executor::Stream& stream) override { enqueue_(stream); }

 private:
  const std::function<void(executor::Stream&)> enqueue_;
};

}  // namespace

StatusOr<GroupPlacement> PlacementOf(const CollectiveKey& key, int ranks, int ranks_per_node) {
  GroupPlacement placement;
  int stride = 1;
  const auto none = [&] {
    return InvalidInput(
        StrCat(Describe(key), ": found no such groups among ", ranks, " ranks, ", ranks_per_node, " a node"));
  };
  if (key.group.size < 1 || key.group.size > ranks) return none();
  if (key.collective == Collective::kAllToAllAllGather) {
    placement = {.layout = {.tensor_parallel = key.gather_group_size,
                            .expert_parallel = key.group.size / std::max(1, key.shards),
                            .expert_sharding_parallel = key.shards},
                 .group = Group::kExpertShard};
  } else {
    stride = key.group.size > key.group.ranks_per_node ? ranks_per_node / key.group.ranks_per_node : 1;
    placement.layout = {.expert_parallel = key.group.size, .expert_sharding_parallel = std::max(1, stride)};
  }
  const int block = placement.layout.expert_parallel * placement.layout.expert_sharding_parallel;
  const bool tiles = stride >= 1 && block <= ranks && ranks % block == 0 &&
                     ranks % placement.layout.tensor_parallel == 0 &&
                     ShapeOf(placement.group, placement.layout, ranks_per_node) == key.group;
  if (!tiles) return none();
  return placement;
}

StatusOr<std::unique_ptr<Operation>> MakeCollective(const CollectiveKey& key, double bytes,
                                                    const CollectiveContext& context) {
  auto operation = std::make_unique<CollectiveOperation>(key, context);
  RETURN_IF_ERROR(operation->Allocate(bytes));
  return operation;
}

executor::LayerWeights WeightsOn(const executor::Rank& rank, const Layer& layer, const executor::LayerShard& shard,
                                 uint64_t seed) {
  if (rank.computes()) return executor::MakeWeights(layer, shard, seed);
  executor::LayerWeights weights;
  weights.experts.shard = shard.experts;
  weights.shared.shard = shard.shared;
  return weights;
}

StatusOr<std::unique_ptr<Operation>> MakeKernel(const KernelKey& key, double size, executor::Rank& rank,
                                                const Workload& workload) {
  if (IsOfTheRestOfAStep(key.kernel)) {
    auto enqueue = rank.StepKernel(key, size);
    if (enqueue != nullptr) return std::make_unique<StepKernelOperation>(std::move(enqueue));
    return Unimplemented(StrCat(Name(key.kernel), ": the executor has no such kernel; expected one of a MoE layer"));
  }
  auto operation = std::make_unique<KernelOperation>(key, workload, rank);
  RETURN_IF_ERROR(operation->Prepare(size, workload, rank));
  return operation;
}

}  // namespace moeplan::agent
