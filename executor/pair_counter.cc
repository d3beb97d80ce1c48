#include "executor/pair_counter.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "executor/errors.h"
#include "models/routing/expert_load.h"

namespace moeplan::executor {

StatusOr<PairCounter> PairCounter::Make(const Workload& workload, RankRuntime& rank) {
  ASSIGN_OR_RETURN(Communicator * stage, rank.StageOf(workload.layout));
  PairCounter counter(workload, rank, *stage);
  RETURN_IF_ERROR(counter.Allocate());
  return counter;
}

Status PairCounter::Allocate() {
  Device& device = rank_->device();
  const LayerSizes sizes = SizesOf(layer_, layout_);
  const auto experts = static_cast<size_t>(layer_.experts);
  const size_t pairs = static_cast<size_t>(sizes.tokens) * RoutingWidth(layer_);
  ASSIGN_OR_RETURN(rows_, device.Allocate(static_cast<size_t>(sizes.input_bytes)));
  ASSIGN_OR_RETURN(routing_, device.Allocate(Routing::Bytes(pairs)));
  ASSIGN_OR_RETURN(counts_, device.Allocate(experts * sizeof(int32_t)));
  ASSIGN_OR_RETURN(sums_, device.Allocate(RouterSums::Count(layer_.experts) * sizeof(double)));
  ASSIGN_OR_RETURN(own_, device.Allocate(sizeof(int32_t)));
  ASSIGN_OR_RETURN(all_, device.Allocate(stage_->size() * sizeof(int32_t)));
  return OkStatus();
}

StatusOr<int> PairCounter::Most(const Call& call, std::span<const std::byte> input, Kernels& kernels) {
  Device& device = rank_->device();
  Stream& stream = rank_->streams(call.lane)[StreamKind::kCompute];
  std::vector<int32_t> counts(layer_.experts);
  RETURN_IF_ERROR(rank_->AwaitHandedOver(call.lane));
  RETURN_IF_ERROR(rank_->FollowJob(call.lane));
  device.Label(stream, "count pairs");
  device.Copy(rows_.data(), input.data(), input.size(), stream);
  kernels.TakeWeights(stream);
  kernels.Gate({.tokens = {.data = rows_.data(),
                           .rows_per_block = call.tokens,
                           .valid_rows = call.tokens,
                           .first_token = call.first_token},
                .routing = Routing::At(routing_.data(), static_cast<size_t>(call.tokens) * RoutingWidth(layer_)),
                .capacity = call.tokens,
                .counts = reinterpret_cast<int32_t*>(counts_.data()),
                .sums = RouterSums::At(reinterpret_cast<double*>(sums_.data()), layer_.experts)},
               stream);
  device.Copy(reinterpret_cast<std::byte*>(counts.data()), counts_.data(), counts_.bytes(), stream);
  RETURN_IF_ERROR(device.Await(stream));
  return *std::ranges::max_element(counts);
}

StatusOr<int> PairCounter::Slots(const Call& call, std::span<const std::byte> input, Kernels& kernels) {
  ASSIGN_OR_RETURN(const int32_t own, Most(call, input, kernels));
  Device& device = rank_->device();
  Stream& stream = rank_->streams(call.lane)[StreamKind::kInterNode];
  std::vector<int32_t> all(stage_->size());
  device.Label(stream, "agree on slots");
  device.SetTokens(stream, {.call = call.tokens, .batch = call.batch_tokens});
  device.Copy(own_.data(), reinterpret_cast<const std::byte*>(&own), sizeof(own), stream);
  stage_->AllGather({own_.data(), own_.bytes()}, {all_.data(), all_.bytes()}, stream);
  device.SetTokens(stream, {});
  device.Copy(reinterpret_cast<std::byte*>(all.data()), all_.data(), all_.bytes(), stream);
  RETURN_IF_ERROR(device.Await(stream));
  const auto busiest = std::ranges::max_element(all);
  const double even = static_cast<double>(call.tokens) * layer_.top_k / layer_.experts;
  double limit = call.tokens;  // A token chooses an expert once.
  if (layer_.receive_factor > 0) limit = std::min(limit, std::ceil(layer_.receive_factor * even - 1e-9));
  if (call.batch_slots > 0) limit = std::min<double>(limit, call.batch_slots);
  if (call.batch_slots == 0 && *busiest > limit) {
    const int first = rank_->world().rank() - stage_->rank();  // Stages are runs of ranks.
    return error::TooManyPairs(first + static_cast<int>(busiest - all.begin()), *busiest, static_cast<int>(limit),
                               layer_.receive_factor, even);
  }
  return std::min(RoundedSlots(std::max(1, *busiest)), std::max(1, static_cast<int>(limit)));
}

}  // namespace moeplan::executor
