#include "executor/cuda/staged_exchange.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "executor/cuda/errors.h"
#include "executor/cuda/pinned_memory.h"
#include "executor/cuda/stream_gate.h"
#include "executor/host/mesh_operation.h"

namespace moeplan::executor::cuda {
namespace {

// A thread that does what it is given, in order.
template <typename Job>
class Worker {
 public:
  explicit Worker(std::function<void(Job&)> work) : work_(std::move(work)) {}
  // When all that it was given is done.
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    given_.notify_one();
    thread_.join();
  }

  void Give(Job& job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(&job);
    given_.notify_one();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      given_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      Job& job = *jobs_.front();
      jobs_.pop_front();
      lock.unlock();
      work_(job);
      lock.lock();
    }
  }

  const std::function<void(Job&)> work_;
  std::mutex mutex_;
  std::condition_variable given_;
  std::deque<Job*> jobs_;
  bool stopping_ = false;
  std::thread thread_{[this] { Run(); }};
};

class StagedExchange final : public PartExchange {
 public:
  StagedExchange(std::unique_ptr<Mesh> mesh, CudaDevice& device, StagedOptions options, StreamGate gate)
      : mesh_(std::move(mesh)),
        device_(device),
        meeting_(std::move(options.meeting)),
        deadline_s_(options.deadline_s),
        gate_(std::move(gate)),
        watch_(device.Watch([this] { Look(); })) {}

  // Blocks until the stream has passed the last operation, which its deadline bounds.
  ~StagedExchange() override {
    if (passed_ == nullptr) return;
    cudaEventSynchronize(passed_);
    cudaEventDestroy(passed_);
  }

  Status Open() { return StatusOf(cudaEventCreateWithFlags(&passed_, cudaEventDisableTiming), "an event"); }

  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->size(); }
  bool capturable() const override { return size() == 1; }

  Status Exchange(std::span<const Part> sends, std::span<const Part> receives, const std::string& task,
                  Stream& stream) override {
    last_task_ = task;
    const Moves moves = MovesOf(sends, receives, rank());
    cudaStream_t on = StreamOf(stream);
    if (size() == 1) return CopyToSelf(moves, on);
    if (const Status why = mesh_->failure(); !why.ok()) return why.Within(StrCat("task ", task));
    ASSIGN_OR_RETURN(std::byte* const room, Room(BytesThrough(moves)));
    Job& job = NewJob(task);
    std::byte* const behind_sends = Stage(moves.sends, room, job.sends);
    Stage(moves.receives, behind_sends, job.receives);
    RETURN_IF_ERROR(CopyStaged(moves.sends, job.sends, Way::kToHost, on));
    RETURN_IF_ERROR(CopyToSelf(moves, on));
    RETURN_IF_ERROR(HandOver(job, on));
    if (meeting_ != nullptr) RETURN_IF_ERROR(Meet(task));
    RETURN_IF_ERROR(gate_.Hold(on, job.number));
    RETURN_IF_ERROR(CopyStaged(moves.receives, job.receives, Way::kToCard, on));
    return MarkPassed(on);
  }

  Status AllGather(std::span<const std::byte> send, std::span<std::byte> recv, const std::string& task,
                   Stream& stream) override {
    return Exchange(SameToAll(Writable(send), size()), EqualParts(recv, size()), task, stream);
  }

  StatusOr<std::unique_ptr<PartExchange>> Split(int color, int /*max_ctas*/) override {
    // The mesh is the worker's until then.
    RETURN_IF_ERROR(StatusOf(cudaEventSynchronize(passed_), "the operations before a split"));
    ASSIGN_OR_RETURN(std::unique_ptr<Mesh> mesh, SplitMesh(*mesh_, color, sequence_++, deadline_s_));
    StagedOptions options = {.deadline_s = deadline_s_};
    if (meeting_ != nullptr) {
      ASSIGN_OR_RETURN(options.meeting, SplitMesh(*meeting_, color, meetings_++, deadline_s_));
    }
    return MakeStagedExchange(std::move(mesh), device_, std::move(options));
  }

  void Abort(const Status& why) override {
    mesh_->Abort(why);
    if (meeting_ != nullptr) meeting_->Abort(why);
  }

 private:
  // An operation as the worker sees it: parts are pinned memory.
  struct Job {
    StagedExchange* exchange = nullptr;
    std::string task;
    uint32_t number = 0;
    std::vector<Part> sends, receives;
    std::atomic<bool> done = false;
  };

  enum class Way { kToHost, kToCard };

  static constexpr size_t kAlignment = 256;
  static size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  // At most: what goes to several ranks is there once.
  size_t BytesThrough(const Moves& moves) const {
    size_t bytes = 0;
    for (const std::vector<Part>* parts : {&moves.sends, &moves.receives}) {
      for (const Part& part : *parts) bytes += part.peer == rank() ? 0 : Aligned(part.bytes.size());
    }
    return bytes;
  }

  // The same at each call for as many bytes. One operation after the other has it, as its stream runs them.
  StatusOr<std::byte*> Room(size_t bytes) {
    if (rooms_.empty() || rooms_.back().bytes() < bytes) {
      if (cudaEventQuery(passed_) == cudaSuccess) rooms_.clear();
      ASSIGN_OR_RETURN(DeviceMemory more, AllocatePinned(std::max(bytes, kAlignment)));
      rooms_.push_back(std::move(more));
    }
    return rooms_.back().data();
  }

  Job& NewJob(const std::string& task) {
    while (!jobs_.empty() && jobs_.front().done) jobs_.pop_front();
    Job& job = jobs_.emplace_back();
    job.exchange = this;
    job.task = task;
    job.number = ++last_number_;
    return job;
  }

  // Where in `room` the parts of other ranks are, in their order; what follows the last.
  std::byte* Stage(const std::vector<Part>& parts, std::byte* room, std::vector<Part>& staged) const {
    const Part* before = nullptr;
    for (const Part& part : parts) {
      if (part.peer == rank()) continue;
      const bool again =
          before != nullptr && before->bytes.data() == part.bytes.data() && before->bytes.size() == part.bytes.size();
      std::byte* const at = again ? staged.back().bytes.data() : std::exchange(room, room + Aligned(part.bytes.size()));
      staged.push_back({part.peer, {at, part.bytes.size()}, part.index});
      before = &part;
    }
    return room;
  }

  Status CopyStaged(const std::vector<Part>& parts, const std::vector<Part>& staged, Way way, cudaStream_t on) const {
    auto one = staged.begin();
    const std::byte* before = nullptr;
    for (const Part& part : parts) {
      if (part.peer == rank()) continue;
      std::byte* const pinned = (one++)->bytes.data();
      if (pinned == std::exchange(before, pinned)) continue;
      const bool to_host = way == Way::kToHost;
      RETURN_IF_ERROR(
          StatusOf(cudaMemcpyAsync(to_host ? pinned : part.bytes.data(), to_host ? part.bytes.data() : pinned,
                                   part.bytes.size(), cudaMemcpyDefault, on),
                   "a copy through pinned memory"));
    }
    return OkStatus();
  }

  Status CopyToSelf(const Moves& moves, cudaStream_t on) const {
    auto send = moves.sends.begin();
    for (const Part& receive : moves.receives) {
      if (receive.peer != rank()) continue;
      send = std::ranges::find(send, moves.sends.end(), rank(), &Part::peer);
      RETURN_IF_ERROR(
          StatusOf(cudaMemcpyAsync(receive.bytes.data(), send->bytes.data(), send->bytes.size(), cudaMemcpyDefault, on),
                   "a copy"));
      ++send;
    }
    return OkStatus();
  }

  // Not the device's own work of the host, which is skipped once the device has failed: streams would wait for ever.
  Status HandOver(Job& job, cudaStream_t on) {
    const auto give = [](void* data) {
      auto& given = *static_cast<Job*>(data);
      given.exchange->worker_.Give(given);
    };
    if (const cudaError_t error = cudaLaunchHostFunc(on, give, &job); error != cudaSuccess) {
      jobs_.pop_back();
      return StatusOf(error, "a host function");
    }
    return MarkPassed(on);
  }

  Status MarkPassed(cudaStream_t on) { return StatusOf(cudaEventRecord(passed_, on), "an event"); }

  // All ranks have queued what they send.
  Status Meet(const std::string& task) {
    MeshOperation meeting(*meeting_, task);
    meeting.Begin(meetings_++, DeadlineIn(deadline_s_));
    return meeting.SignalAll();
  }

  // ---- On the worker.

  void Carry(Job& job) {
    if (const Status status = ExchangeOver(job); !status.ok()) {
      device_.Fail(status);
      // What is queued behind still runs, and may take what it finds here for sizes.
      for (const Part& part : job.receives) std::ranges::fill(part.bytes, std::byte{});
    }
    gate_.Raise(job.number);
    job.done = true;
  }

  Status ExchangeOver(const Job& job) {
    if (device_.failed()) return OkStatus();
    MeshOperation operation(*mesh_, job.task);
    operation.Begin(sequence_++, DeadlineIn(deadline_s_));
    return operation.Exchange(job.sends, job.receives);
  }

  // ---- What failed on another rank when this one had done its part.
  void Look() {
    if (last_task_.empty() || device_.failed()) return;
    if (const Status why = mesh_->failure(); !why.ok()) device_.Fail(why.Within(StrCat("task ", last_task_)));
  }

  const std::unique_ptr<Mesh> mesh_;  // The worker's, and while no operation is under way the driving thread's.
  CudaDevice& device_;
  const std::unique_ptr<Mesh> meeting_;
  const double deadline_s_;
  StreamGate gate_;
  std::vector<DeviceMemory> rooms_;  // Each larger than those before, which the stream may still use.
  std::deque<Job> jobs_;
  uint32_t last_number_ = 0;
  uint64_t sequence_ = 0, meetings_ = 0;
  cudaEvent_t passed_ = nullptr;  // All operations so far.
  std::string last_task_;
  const std::shared_ptr<void> watch_;
  Worker<Job> worker_{[this](Job& job) { Carry(job); }};  // Last: it ends before what it works on.
};

}  // namespace

StatusOr<std::unique_ptr<PartExchange>> MakeStagedExchange(std::unique_ptr<Mesh> mesh, CudaDevice& device,
                                                           StagedOptions options) {
  ASSIGN_OR_RETURN(StreamGate gate, StreamGate::Make());
  auto made = std::make_unique<StagedExchange>(std::move(mesh), device, std::move(options), std::move(gate));
  RETURN_IF_ERROR(made->Open());
  return made;
}

}  // namespace moeplan::executor::cuda
