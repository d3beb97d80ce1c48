#include "executor/runtime/rank_runtime.h"

#include <utility>

#include "executor/errors.h"

namespace moeplan::executor {

RankRuntime::RankRuntime(Device& device, Communicator& world, KernelsFactory make_kernels,
                         DeviceKernelsFactory make_device_kernels)
    : device_(device),
      world_(world),
      make_kernels_(std::move(make_kernels)),
      make_device_kernels_(std::move(make_device_kernels)) {}

StatusOr<std::unique_ptr<Kernels>> RankRuntime::MakeKernels(const Layer& layer, const LayerShard& shard,
                                                            const WeightsMemory& weights) const {
  if (const auto* const on_host = std::get_if<LayerWeightsView>(&weights)) {
    LayerGradientsView gradients;
    gradients.given = true;
    return make_kernels_(layer, *on_host, gradients);
  }
  if (make_device_kernels_ == nullptr) return error::NoDeviceKernels();
  return make_device_kernels_(layer, shard, std::get<DeviceWeights>(weights));
}

Status RankRuntime::FollowJob(Lane lane) {
  return job_stream_ ? device_.FollowJob(streams(lane)[StreamKind::kCompute], *job_stream_) : OkStatus();
}

Status RankRuntime::HandOver(Lane lane) {
  if (lane == Lane::kInLine) {
    if (!job_stream_) return device_.Synchronize();
    device_.HoldJob(*job_stream_, streams(lane)[StreamKind::kCompute]);
  }
  handed_over_[static_cast<size_t>(lane)] = true;
  return device_.first_error();
}

Status RankRuntime::AwaitHandedOver(Lane lane) {
  if (!std::exchange(handed_over_[static_cast<size_t>(lane)], false)) return OkStatus();
  return lane == Lane::kInLine ? device_.Synchronize() : device_.Await(streams(lane)[StreamKind::kCompute]);
}

Status RankRuntime::Finish(Lane lane) {
  if (!job_stream_) return AwaitHandedOver(lane);
  device_.HoldJob(*job_stream_, streams(lane)[StreamKind::kCompute]);
  return device_.first_error();
}

RankStreams& RankRuntime::streams(Lane lane) {
  std::optional<RankStreams>& own = streams_[static_cast<size_t>(lane)];
  if (!own) own.emplace(device_);
  return *own;
}

int RankRuntime::StageRank(const Layout& layout) const {
  return world_.rank() % (world_.size() / layout.pipeline_parallel);
}

StatusOr<GroupCommunicators*> RankRuntime::GroupsOf(const Layout& layout, int set, int ctas) {
  const GroupsKey key = {layout.tensor_parallel,
                         layout.expert_parallel,
                         layout.expert_sharding_parallel,
                         layout.pipeline_parallel,
                         set,
                         ctas};
  if (const auto found = groups_.find(key); found != groups_.end()) return &found->second;
  ASSIGN_OR_RETURN(Communicator * stage, StageOf(layout));
  ASSIGN_OR_RETURN(GroupCommunicators groups, GroupCommunicators::Make(*stage, layout, ctas));
  return &groups_.emplace(key, std::move(groups)).first->second;
}

StatusOr<RankContext> RankRuntime::ContextOf(const Layout& layout, Kernels& kernels, int ctas, Lane lane) {
  ASSIGN_OR_RETURN(GroupCommunicators * groups, GroupsOf(layout, static_cast<int>(lane), ctas));
  return RankContext{
      .rank = StageRank(layout), .device = device_, .streams = streams(lane), .groups = *groups, .kernels = kernels};
}

StatusOr<Communicator*> RankRuntime::StageOf(const Layout& layout) {
  if (layout.pipeline_parallel == 1) return &world_;
  std::unique_ptr<Communicator>& stage = stages_[layout.pipeline_parallel];
  if (stage == nullptr) {
    const int stage_ranks = world_.size() / layout.pipeline_parallel;
    ASSIGN_OR_RETURN(stage, world_.Split(world_.rank() / stage_ranks));
  }
  return stage.get();
}

}  // namespace moeplan::executor
