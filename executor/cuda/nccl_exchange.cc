#include "executor/cuda/nccl_exchange.h"

#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "executor/cuda/errors.h"
#include "executor/cuda/machine_errors.h"
#include "executor/cuda/nccl_operations.h"
#include "executor/cuda/patience.h"

namespace moeplan::executor::cuda {
namespace {

// Why a group may no longer be used, set by any thread; those split from it are as lost.
class Doom {
 public:
  explicit Doom(std::shared_ptr<const Doom> of_parent = nullptr) : of_parent_(std::move(of_parent)) {}

  void Set(const Status& why) {
    const std::lock_guard lock(mutex_);
    if (why_.ok()) why_ = why;
  }
  Status why() const {
    if (of_parent_ != nullptr) RETURN_IF_ERROR(of_parent_->why());
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  const std::shared_ptr<const Doom> of_parent_;
  mutable std::mutex mutex_;
  Status why_;
};

// How long who ends an exchange waits for its abort.
constexpr std::chrono::seconds kAbortTime{10};

struct Place {
  int rank = 0;
  std::vector<int> job_ranks;  // Of the group's ranks.
};

ncclConfig_t ConfigOf(const NcclOptions& options) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (options.max_ctas > 0) config.maxCTAs = options.max_ctas;
  return config;
}

// Aborts on a thread of its own and says when that has ended. ncclCommAbort first tells the communicator's kernels to
// end, then blocks: commDestroySync (NCCL's src/init.cc) waits until every graph that has captured the communicator is
// destroyed (localPersistentRefs), and what frees its memory waits for all kernels on the card, those of other
// communicators too. The thread that drives the device must not wait here, for it has to abort those others, to see its
// streams end, and to destroy its graphs. It cannot destroy them first: one whose kernel is stuck goes when it has
// ended.
std::future<void> StartAbort(ncclComm_t comm) {
  std::packaged_task<void()> abort([comm] { ncclCommAbort(comm); });  // An error changes nothing: nobody uses it again.
  std::future<void> ended = abort.get_future();
  std::thread(std::move(abort)).detach();
  return ended;
}

class NcclExchange final : public PartExchange {
 public:
  NcclExchange(Place place, CudaDevice& device, NcclOptions options, std::shared_ptr<Doom> doom)
      : place_(std::move(place)),
        device_(device),
        options_(std::move(options)),
        doom_(std::move(doom)),
        operations_(std::make_shared<NcclOperations>(options_.deadline_s)) {
    for (const int rank : place_.job_ranks) {
      if (rank != place_.job_ranks[place_.rank]) peers_.push_back(rank);
    }
    if (options_.aborts != nullptr)
      options_.aborts->Join(options_.name, [doom = doom_](const Status& why) { doom->Set(why); });
    watch_ = device_.Watch([this] { Look(); });
  }

  ~NcclExchange() override {
    if (options_.aborts != nullptr) options_.aborts->Leave(options_.name);
    if (comm_ != nullptr) End();
    // An abort that takes longer goes on alone: a rank that has failed should end, whatever its peers do.
    if (abort_.valid()) abort_.wait_for(kAbortTime);
  }

  Status Init(const std::vector<std::byte>& id) {
    ncclUniqueId unique{};
    std::memcpy(unique.internal, id.data(), sizeof unique.internal);
    ncclConfig_t config = ConfigOf(options_);
    return Start("connect", 0, [&] { return ncclCommInitRankConfig(&comm_, size(), unique, rank(), &config); });
  }

  int rank() const override { return place_.rank; }
  int size() const override { return static_cast<int>(place_.job_ranks.size()); }
  bool capturable() const override { return true; }
  bool limits_ctas() const override { return true; }

  Status Exchange(std::span<const Part> sends, std::span<const Part> receives, const std::string& task,
                  Stream& stream) override {
    const Moves moves = MovesOf(sends, receives, rank());
    if (moves.sends.empty() && moves.receives.empty()) return OkStatus();
    size_t bytes = 0;
    for (const Part& send : moves.sends) bytes += send.peer == rank() ? 0 : send.bytes.size();
    return Queue(task, bytes, stream, [&](cudaStream_t on) { return QueueMoves(moves, on); });
  }

  Status AllGather(std::span<const std::byte> send, std::span<std::byte> recv, const std::string& task,
                   Stream& stream) override {
    if (send.empty()) return OkStatus();
    return Queue(task, send.size(), stream, [&](cudaStream_t on) {
      return ncclAllGather(send.data(), recv.data(), send.size(), ncclInt8, comm_, on);
    });
  }

  StatusOr<std::unique_ptr<PartExchange>> Split(int color, int max_ctas) override {
    ASSIGN_OR_RETURN(const std::vector<int> colors, GatherColors(color));
    Place place;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) place.rank = static_cast<int>(place.job_ranks.size());
      if (colors[peer] == color) place.job_ranks.push_back(place_.job_ranks[peer]);
    }
    NcclOptions options = options_;
    options.name += StrCat("/", splits_++, ".", color);
    if (max_ctas > 0) options.max_ctas = max_ctas;
    auto child = std::make_unique<NcclExchange>(std::move(place), device_, options, std::make_shared<Doom>(doom_));
    ncclConfig_t config = ConfigOf(options);
    // NCCL takes no negative colors, and those of one split need only differ.
    const auto place_of_color = std::ranges::find(colors, color) - colors.begin();
    const Status split = Start("split", 0, [&] {
      return ncclCommSplit(comm_, static_cast<int>(place_of_color), rank(), &child->comm_, &config);
    });
    if (!split.ok()) {
      // NCCL may write `comm_` of the child until the own communicator has ended.
      child->Abort(split);
      unfinished_.push_back(std::move(child));
      return split;
    }
    RETURN_IF_ERROR(child->Start("split", 0, [] { return ncclInProgress; }));
    return child;
  }

  // Memory that NCCL cannot register is sent from and received into all the same.
  std::shared_ptr<void> Register(std::span<std::byte> memory) override {
    void* handle = nullptr;
    if (comm_ == nullptr || ncclCommRegister(comm_, memory.data(), memory.size(), &handle) != ncclSuccess)
      return nullptr;
    // A failure changes nothing: the communicator takes what is registered with it when it ends.
    return {handle, [this](void* registered) {
              if (comm_ != nullptr && registered != nullptr) ncclCommDeregister(comm_, registered);
            }};
  }

  void Abort(const Status& why) override {
    doom_->Set(why);
    if (options_.aborts != nullptr) options_.aborts->Abort(options_.name, why);
  }

 private:
  ncclResult_t QueueMoves(const Moves& moves, cudaStream_t on) {
    ncclResult_t first = ncclGroupStart();
    const auto keep = [&](ncclResult_t result) { first = first == ncclSuccess ? result : first; };
    for (const Part& part : moves.receives)
      keep(ncclRecv(part.bytes.data(), part.bytes.size(), ncclInt8, part.peer, comm_, on));
    for (const Part& part : moves.sends)
      keep(ncclSend(part.bytes.data(), part.bytes.size(), ncclInt8, part.peer, comm_, on));
    keep(ncclGroupEnd());
    return first;
  }

  template <typename Body>
  Status Queue(const std::string& task, size_t bytes, Stream& stream, Body body) {
    if (const Status why = doom_->why(); !why.ok()) return why.Within(StrCat("task ", task));
    cudaStream_t on = StreamOf(stream);
    ASSIGN_OR_RETURN(NcclOperations::Operation * operation, operations_->Begin(task, bytes, device_.capturing(), on));
    if (device_.capturing()) {
      const std::weak_ptr<NcclOperations> operations = operations_;
      device_.KeepWithCapture({nullptr, [operations, operation](void*) {
                                 if (const auto alive = operations.lock()) alive->Retire(*operation);
                               }});
    }
    RETURN_IF_ERROR(Start(task, bytes, [&] { return body(on); }));
    return operations_->End(*operation, on);
  }

  // Calls NCCL, which goes on behind, and waits until it has done its part on the host.
  template <typename Call>
  Status Start(const std::string& task, size_t bytes, Call call) {
    const ncclResult_t called = call();
    if (called != ncclSuccess && called != ncclInProgress) return Explain(called, task, bytes);
    return Settle(comm_, task, bytes);
  }

  Status Settle(ncclComm_t comm, const std::string& task, size_t bytes) const {
    const HostTime end = std::chrono::steady_clock::now() + DurationOf(options_.deadline_s);
    for (Patience patience;; patience.Rest()) {
      ncclResult_t state = ncclSuccess;
      if (const ncclResult_t asked = ncclCommGetAsyncError(comm, &state); asked != ncclSuccess) state = asked;
      if (state == ncclSuccess) return OkStatus();
      if (state != ncclInProgress) return Explain(state, task, bytes);
      if (const Status why = doom_->why(); !why.ok()) return why.Within(StrCat("task ", task));
      if (std::chrono::steady_clock::now() >= end) return Overdue(task, bytes);
    }
  }

  error::NcclOperation Describe(const std::string& task, size_t bytes) const {
    return {.task = task, .bytes = bytes, .rank = place_.job_ranks[rank()], .peers = peers_};
  }

  Status Explain(ncclResult_t result, const std::string& task, size_t bytes) const {
    const char* const last = ncclGetLastError(comm_);
    const std::string says =
        StrCat(ncclGetErrorString(result), last == nullptr || *last == '\0' ? "" : ": ", last == nullptr ? "" : last);
    const error::NcclOperation operation = Describe(task, bytes);
    return AfterAsking(result == ncclRemoteError ? error::NcclLostPeer(operation, says)
                                                 : error::NcclFailed(operation, says));
  }

  Status Overdue(const std::string& task, size_t bytes) const {
    return AfterAsking(error::NcclOverdue(Describe(task, bytes), options_.deadline_s));
  }

  // Before the communicator is aborted: the service knows it until then.
  Status AfterAsking(const Status& error) const { return error::WithRasFindings(error, AskRas(options_.ras_address)); }

  // While the host waits for the device.
  void Look() {
    if (comm_ == nullptr) return;
    const auto give_up = [&](const auto& error_of) {
      const NcclOperations::Operation* const now = operations_->UnderWay();
      now == nullptr ? GiveUp(error_of(std::string("none"), 0)) : GiveUp(error_of(now->task, now->bytes));
    };
    if (const Status why = doom_->why(); !why.ok()) {
      return give_up([&](const std::string& task, size_t) { return why.Within(StrCat("task ", task)); });
    }
    ncclResult_t state = ncclSuccess;
    if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) state = ncclInternalError;
    if (state != ncclSuccess && state != ncclInProgress) {
      return give_up([&](const std::string& task, size_t bytes) { return Explain(state, task, bytes); });
    }
    const auto* const late = operations_->FindOverdue(device_.replays(), std::chrono::steady_clock::now());
    if (late != nullptr) GiveUp(Overdue(late->task, late->bytes));
  }

  // Lets go of streams that wait for peers.
  void GiveUp(const Status& why) {
    device_.Fail(why);
    Abort(why);
    abort_ = StartAbort(std::exchange(comm_, nullptr));
  }

  // Ends a communicator that has not failed; graphs and operations have ended before.
  void End() {
    const bool sound =
        !device_.failed() && doom_->why().ok() && Start("end", 0, [this] { return ncclCommFinalize(comm_); }).ok();
    if (sound) {
      ncclCommDestroy(comm_);  // An error changes nothing: nobody uses it again.
    } else {
      abort_ = StartAbort(std::exchange(comm_, nullptr));
    }
  }

  StatusOr<std::vector<int>> GatherColors(int color) {
    std::vector<int> colors(size());
    ASSIGN_OR_RETURN(const DeviceMemory own, device_.Upload(reinterpret_cast<const std::byte*>(&color), sizeof color));
    ASSIGN_OR_RETURN(const DeviceMemory all, device_.Allocate(colors.size() * sizeof(int)));
    const std::unique_ptr<Stream> stream = device_.MakeStream("SPLIT", StreamPriority::kNormal);
    device_.Label(*stream, "split");
    RETURN_IF_ERROR(AllGather({own.data(), own.bytes()}, {all.data(), all.bytes()}, "split", *stream));
    device_.Copy(reinterpret_cast<std::byte*>(colors.data()), all.data(), all.bytes(), *stream);
    RETURN_IF_ERROR(device_.Await(*stream));
    return colors;
  }

  const Place place_;
  CudaDevice& device_;
  const NcclOptions options_;
  const std::shared_ptr<Doom> doom_;
  std::vector<int> peers_;
  const std::shared_ptr<NcclOperations> operations_;
  ncclComm_t comm_ = nullptr;  // Null before Init and once aborted.
  std::future<void> abort_;    // Invalid until it begins.
  int splits_ = 0;
  std::vector<std::unique_ptr<NcclExchange>> unfinished_;  // Those whose split has failed.
  std::shared_ptr<void> watch_;
};

}  // namespace

std::string NcclVersion() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "NCCL";
  return StrCat("NCCL ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

StatusOr<std::unique_ptr<PartExchange>> MakeNcclExchange(int rank, int size, const ShareBytes& share,
                                                         CudaDevice& device, const NcclOptions& options) {
  ncclUniqueId own{};
  if (rank == 0) {
    if (const ncclResult_t made = ncclGetUniqueId(&own); made != ncclSuccess)
      return error::NcclFailed({.task = "connect"}, ncclGetErrorString(made));
  }
  const auto bytes = std::as_bytes(std::span(own.internal));
  ASSIGN_OR_RETURN(const std::vector<std::byte> id, share({bytes.begin(), bytes.end()}));
  Place place = {.rank = rank};
  for (int peer = 0; peer < size; ++peer) place.job_ranks.push_back(peer);
  auto world = std::make_unique<NcclExchange>(std::move(place), device, options, std::make_shared<Doom>());
  RETURN_IF_ERROR(world->Init(id));
  return world;
}

}  // namespace moeplan::executor::cuda
