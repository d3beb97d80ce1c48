#include "executor/cuda/graph_recording.h"

#include <utility>
#include <vector>

#include "executor/cuda/machine_errors.h"

namespace moeplan::executor::cuda {
namespace {

class GraphRecording final : public Recording {
 public:
  GraphRecording(std::shared_ptr<SharedCard> card, std::function<void()> queue)
      : card_(std::move(card)), queue_(std::move(queue)) {
    // Relaxed: memory may be made meanwhile, by other threads of the job too.
    const cudaError_t begun = cudaStreamBeginCapture(card_->origin, cudaStreamCaptureModeRelaxed);
    begun == cudaSuccess ? TakeDown() : card_->Check(begun, "the start of a capture");
  }

  ~GraphRecording() override {
    if (runs_ != nullptr) {
      card_->AwaitEnd(ended_);  // Until then a run may need `calls_`.
      cudaGraphExecDestroy(runs_);
    }
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    if (ended_ != nullptr) cudaEventDestroy(ended_);
  }

  void Enqueue() override {
    if (card_->failure.failed()) return;
    if (CanReplay()) return Replay();
    if (has_to_replay_ && MayDiffer()) return card_->failure.Set(error::NoGraphHere());
    queue_();
  }

  bool MayDiffer() const override { return !scope_.refused_on_all_ranks(); }
  bool CanReplay() override {
    if (graph_ != nullptr && runs_ == nullptr) Instantiate();
    return graph_ != nullptr;
  }
  void QueueAnew() override { GiveUp(); }
  void ReplayOrFail() override { has_to_replay_ = true; }

 private:
  void TakeDown() {
    card_->scope = &scope_;
    card_->scope_calls = &calls_;
    queue_();
    for (CudaStream* stream : scope_.streams()) stream->Hold(card_->origin);
    const cudaError_t ended = cudaStreamEndCapture(card_->origin, &graph_);
    card_->scope = nullptr;
    card_->scope_calls = nullptr;
    if (ended != cudaSuccess || !scope_.refusal().empty()) GiveUp();
  }

  // On the first run: plans are compared that never run.
  void Instantiate() {
    // Else nodes would all have the priority of the stream that the graph is launched on.
    const bool instantiated =
        cudaGraphInstantiateWithFlags(&runs_, graph_, cudaGraphInstantiateFlagUseNodePriority) == cudaSuccess &&
        cudaEventCreateWithFlags(&ended_, cudaEventDisableTiming) == cudaSuccess;
    if (!instantiated) GiveUp();
  }

  // On a stream of its own, so that runs on other streams go on beside it.
  void Replay() {
    const std::vector<CudaStream*>& streams = scope_.streams();
    const cudaStream_t first = streams.empty() ? card_->origin : streams.front()->raw();
    for (CudaStream* stream : streams) {
      if (stream->raw() != first) stream->Hold(first);
    }
    card_->Check(cudaGraphLaunch(runs_, first), "a graph");
    card_->Check(cudaEventRecord(ended_, first), "an event");
    for (CudaStream* stream : streams) {
      if (stream->raw() != first) card_->Check(cudaStreamWaitEvent(stream->raw(), ended_, 0), "a wait");
    }
    for (CudaEvent* event : scope_.events()) event->anchor = card_->anchor;
    ++card_->replays;
  }

  // Not an error: what CUDA cannot do as a graph it may do when it is queued. What it cannot do at all fails again
  // then.
  void GiveUp() {
    if (runs_ != nullptr) cudaGraphExecDestroy(std::exchange(runs_, nullptr));
    if (graph_ != nullptr) cudaGraphDestroy(std::exchange(graph_, nullptr));
    calls_.clear();
    scope_.Release();
    cudaGetLastError();
  }

  const std::shared_ptr<SharedCard> card_;
  const std::function<void()> queue_;
  Scope scope_;
  std::deque<HostCall> calls_;
  cudaGraph_t graph_ = nullptr;     // Null: no graph is possible.
  cudaGraphExec_t runs_ = nullptr;  // Null before the first run.
  cudaEvent_t ended_ = nullptr;
  bool has_to_replay_ = false;
};

}  // namespace

std::unique_ptr<Recording> MakeGraphRecording(std::shared_ptr<SharedCard> card, std::function<void()> queue) {
  return std::make_unique<GraphRecording>(std::move(card), std::move(queue));
}

}  // namespace moeplan::executor::cuda
