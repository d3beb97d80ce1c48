#include "executor/cuda/in_process_exchange.h"

#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "executor/cuda/deadline_watch.h"
#include "executor/cuda/errors.h"
#include "executor/cuda/machine_errors.h"
#include "executor/errors.h"
#include "models/check.h"

namespace moeplan::executor::cuda {
namespace {

// What a rank shows the others of its group. Shared: they still wait for `done` when the rank may have gone.
struct Offer {
  cudaEvent_t ready = nullptr;  // Its parts may be read.
  cudaEvent_t done = nullptr;   // It has read all it wants.
  std::vector<Part> sends;

  Offer() = default;
  Offer(const Offer&) = delete;
  Offer& operator=(const Offer&) = delete;
  ~Offer() {
    for (cudaEvent_t event : {ready, done}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
};

// The offers of all ranks of this process, by number: a rank that has failed may be gone when others look for its
// offer.
class OfferBook {
 public:
  uint64_t Add(std::shared_ptr<const Offer> offer) {
    const std::lock_guard lock(mutex_);
    offers_.emplace(++last_, std::move(offer));
    return last_;
  }
  void Remove(uint64_t number) {
    const std::lock_guard lock(mutex_);
    offers_.erase(number);
  }
  // Null: the rank is gone.
  std::shared_ptr<const Offer> Find(uint64_t number) const {
    const std::lock_guard lock(mutex_);
    const auto found = offers_.find(number);
    return found == offers_.end() ? nullptr : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<const Offer>> offers_;
  uint64_t last_ = 0;
};

OfferBook& Offers() {
  static auto* const offers = new OfferBook;
  return *offers;
}

class InProcessExchange final : public PartExchange {
 public:
  InProcessExchange(std::unique_ptr<Mesh> mesh, CudaDevice& device, double deadline_s)
      : mesh_(std::move(mesh)), device_(device), deadline_s_(deadline_s), watch_(device.Watch([this] { Look(); })) {}
  ~InProcessExchange() override { Offers().Remove(offer_number_); }

  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->size(); }
  // Alone, nobody is met.
  bool capturable() const override { return size() == 1; }

  Status Exchange(std::span<const Part> sends, std::span<const Part> receives, const std::string& task,
                  Stream& stream) override {
    last_task_ = task;
    cudaStream_t on = StreamOf(stream);
    RETURN_IF_ERROR(MakeEvents());
    own_->sends.assign(sends.begin(), sends.end());
    RETURN_IF_ERROR(StatusOf(cudaEventRecord(own_->ready, on), "an event"));
    RETURN_IF_ERROR(ShowOffers(task));
    RETURN_IF_ERROR(ForPeers([&](const Offer& peer) { return cudaStreamWaitEvent(on, peer.ready, 0); }));
    RETURN_IF_ERROR(CopyParts(receives, task, on));
    RETURN_IF_ERROR(StatusOf(cudaEventRecord(own_->done, on), "an event"));
    std::byte word{};
    std::vector<std::byte> words(size());
    RETURN_IF_ERROR(Meet({&word, 1}, words, task));
    return ForPeers([&](const Offer& peer) { return cudaStreamWaitEvent(on, peer.done, 0); });
  }

  Status AllGather(std::span<const std::byte> send, std::span<std::byte> recv, const std::string& task,
                   Stream& stream) override {
    return Exchange(SameToAll(Writable(send), size()), EqualParts(recv, size()), task, stream);
  }

  StatusOr<std::unique_ptr<PartExchange>> Split(int color, int /*max_ctas*/) override {
    std::vector<int> colors(size());
    RETURN_IF_ERROR(Meet(std::as_bytes(std::span(&color, 1)), std::as_writable_bytes(std::span(colors)), "split"));
    std::vector<int> members;
    for (int peer = 0; peer < size(); ++peer) {
      if (colors[peer] == color) members.push_back(peer);
    }
    StatusOr<std::unique_ptr<Mesh>> sub_mesh = mesh_->SubMesh(members, DeadlineFromNow());
    if (!sub_mesh.ok()) return sub_mesh.status().Within("task split");
    return MakeInProcessExchange(*std::move(sub_mesh), device_, deadline_s_);
  }

  void Abort(const Status& why) override { mesh_->Abort(why); }

 private:
  Status MakeEvents() {
    for (cudaEvent_t* event : {&own_->ready, &own_->done}) {
      if (*event != nullptr) continue;
      RETURN_IF_ERROR(StatusOf(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "an event"));
    }
    return OkStatus();
  }

  // Every rank is told where the offers of the others are, and keeps them.
  Status ShowOffers(const std::string& task) {
    std::vector<uint64_t> all(size());
    RETURN_IF_ERROR(Meet(std::as_bytes(std::span(&offer_number_, 1)), std::as_writable_bytes(std::span(all)), task));
    offers_.clear();
    for (int peer = 0; peer < size(); ++peer) {
      offers_.push_back(Offers().Find(all[peer]));
      if (offers_.back() != nullptr) continue;
      const Status why = mesh_->failure();
      return why.ok() ? error::LostPeer(mesh_->JobRank(peer), task, 0, "it has ended") : why.Within("task " + task);
    }
    return OkStatus();
  }

  template <typename Function>
  Status ForPeers(Function function) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) RETURN_IF_ERROR(StatusOf(function(*offers_[peer]), "a wait for another rank"));
    }
    return OkStatus();
  }

  Status CopyParts(std::span<const Part> receives, const std::string& task, cudaStream_t on) {
    std::vector<size_t> next(size(), 0);  // Of each peer: the first of its parts that was not looked at.
    for (const Part& receive : receives) {
      const std::vector<Part>& sends = offers_[receive.peer]->sends;
      size_t& at = next[receive.peer];
      while (at < sends.size() && sends[at].peer != rank()) ++at;
      const size_t sent = at < sends.size() ? sends[at].bytes.size() : 0;
      if (sent != receive.bytes.size()) {
        return error::PartsDiffer(mesh_->JobRank(receive.peer), sent, mesh_->JobRank(rank()), receive.bytes.size(),
                                  task);
      }
      if (sent == 0 || sends[at].bytes.data() == receive.bytes.data()) {
        ++at;
        continue;
      }
      RETURN_IF_ERROR(StatusOf(
          cudaMemcpyAsync(receive.bytes.data(), sends[at++].bytes.data(), sent, cudaMemcpyDefault, on), "a copy"));
    }
    return OkStatus();
  }

  // all = the `own` bytes of every rank.
  Status Meet(std::span<const std::byte> own, std::span<std::byte> all, const std::string& task) {
    const uint64_t tag = meetings_++;
    const Deadline deadline = DeadlineFromNow();
    std::memcpy(all.data() + rank() * own.size(), own.data(), own.size());
    std::vector<std::pair<int, std::unique_ptr<PendingTransfer>>> pending;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      auto receive = mesh_->Receive(peer, tag, all.subspan(peer * own.size(), own.size()));
      if (!receive.ok()) return Explain(receive.status(), peer, task);
      pending.emplace_back(peer, *std::move(receive));
      auto send = mesh_->Send(peer, tag, own);
      if (!send.ok()) return Explain(send.status(), peer, task);
      pending.emplace_back(peer, *std::move(send));
    }
    for (auto& [peer, transfer] : pending) {
      if (const Status status = transfer->Wait(deadline); !status.ok()) return Explain(status, peer, task);
    }
    return OkStatus();
  }

  Status Explain(const Status& status, int peer, const std::string& task) const {
    if (status == mesh_->failure() || status.code() != StatusCode::kDeadlineExceeded)
      return status.Within(StrCat("task ", task));
    double bytes = 0;
    for (const Part& part : own_->sends) bytes += part.peer == peer ? static_cast<double>(part.bytes.size()) : 0;
    return error::MissedDeadline(mesh_->JobRank(peer), task, bytes);
  }

  // What failed on another rank after it had queued its side: its data are not what they should be.
  void Look() {
    if (last_task_.empty() || device_.failed()) return;
    if (const Status why = mesh_->failure(); !why.ok()) device_.Fail(why.Within(StrCat("task ", last_task_)));
  }

  Deadline DeadlineFromNow() const { return std::chrono::steady_clock::now() + DurationOf(deadline_s_); }

  const std::unique_ptr<Mesh> mesh_;
  CudaDevice& device_;
  const double deadline_s_;
  const std::shared_ptr<Offer> own_ = std::make_shared<Offer>();
  const uint64_t offer_number_ = Offers().Add(own_);
  std::vector<std::shared_ptr<const Offer>> offers_;  // By rank, of the last exchange.
  uint64_t meetings_ = 0;
  std::string last_task_;
  const std::shared_ptr<void> watch_;
};

}  // namespace

std::unique_ptr<PartExchange> MakeInProcessExchange(std::unique_ptr<Mesh> mesh, CudaDevice& device, double deadline_s) {
  return std::make_unique<InProcessExchange>(std::move(mesh), device, deadline_s);
}

}  // namespace moeplan::executor::cuda
