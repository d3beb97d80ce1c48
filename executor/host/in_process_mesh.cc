#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>

#include "executor/host/mesh.h"
#include "executor/host/spin.h"
#include "models/text.h"

namespace moeplan::executor {
namespace {

constexpr uint64_t kSignal = ~uint64_t{0};

class Hub;
class InProcessTransfer;

// The transfers of a rank that are not in use, kept for the next message. Under the hub's lock.
struct TransferPool {
  std::deque<InProcessTransfer> made;
  InProcessTransfer* first_free = nullptr;
};

// What one side posts.
struct Posted {
  int sender, receiver;
  uint64_t tag;
  bool sends;
  std::byte* data;
  size_t bytes;

  int owner() const { return sends ? sender : receiver; }
  bool Matches(const Posted& other) const {
    return sender == other.sender && receiver == other.receiver && tag == other.tag && sends != other.sends;
  }
};

class InProcessTransfer final : public PendingTransfer {
 public:
  InProcessTransfer(Hub& hub, TransferPool& pool) : hub_(hub), pool_(pool) {}

  Status Wait(Deadline deadline) override;
  // Goes back to its pool instead of being freed.
  static void operator delete(InProcessTransfer* transfer, std::destroying_delete_t);

 private:
  friend class Hub;
  Hub& hub_;
  TransferPool& pool_;
  Posted posted_{};
  int peer_job_rank_ = 0;
  bool waiting_ = false;  // For the other side.
  std::atomic<bool> done_ = false;
  InProcessTransfer* next_ = nullptr;  // Among the waiting or the free ones.
};

// What the ranks of a mesh share.
class Hub {
 public:
  explicit Hub(int size) : waiting_(size, nullptr), changed_(size) {}

  // Whoever of sender and receiver comes second copies.
  std::unique_ptr<PendingTransfer> Post(TransferPool& pool, const Posted& posted, int peer_job_rank) {
    std::unique_lock lock(mutex_);
    InProcessTransfer& own = Take(pool);
    own.posted_ = posted;
    own.peer_job_rank_ = peer_job_rank;
    InProcessTransfer* other =
        TakeWaiting([&](const InProcessTransfer& it) { return it.posted_.Matches(posted); }, posted.receiver);
    own.done_ = other != nullptr;
    own.waiting_ = other == nullptr;
    if (other == nullptr) {
      *EndOf(posted.receiver) = &own;
      return std::unique_ptr<PendingTransfer>(&own);
    }
    other->waiting_ = false;
    lock.unlock();
    const Posted &from = posted.sends ? posted : other->posted_, &to = posted.sends ? other->posted_ : posted;
    if (const size_t bytes = std::min(from.bytes, to.bytes); bytes > 0) std::memcpy(to.data, from.data, bytes);
    lock.lock();
    other->done_ = true;
    changed_[other->posted_.owner()].notify_all();
    return std::unique_ptr<PendingTransfer>(&own);
  }

  Status Await(InProcessTransfer& transfer, Deadline deadline) {
    SpinUntil([&] { return transfer.done_.load(); });
    if (transfer.done_) return OkStatus();
    std::unique_lock lock(mutex_);
    const bool in_time =
        changed_[transfer.posted_.owner()].wait_until(lock, deadline, [&] { return transfer.done_ || !failure_.ok(); });
    if (transfer.done_) return OkStatus();
    if (!failure_.ok()) return failure_;
    return in_time ? OkStatus() : DeadlineExceeded(StrCat("rank ", transfer.peer_job_rank_, " did not answer"));
  }

  void Drop(InProcessTransfer& transfer) {
    std::unique_lock lock(mutex_);
    TakeWaiting([&](const InProcessTransfer& it) { return &it == &transfer; }, transfer.posted_.receiver);
    // Else the other side may still be copying.
    changed_[transfer.posted_.owner()].wait(lock, [&] { return transfer.waiting_ || transfer.done_; });
    transfer.next_ = std::exchange(transfer.pool_.first_free, &transfer);
  }

  void Fail(const Status& why) {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = why;
    for (std::condition_variable& changed : changed_) changed.notify_all();
    for (auto& [members, child] : children_) child->Fail(why);
  }

  Status failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  // The hub of the `count`-th sub-mesh over these members.
  std::shared_ptr<Hub> Child(const std::vector<int>& members, int count) {
    const std::lock_guard lock(mutex_);
    auto& child = children_[{members, count}];
    if (child == nullptr) {
      child = std::make_shared<Hub>(static_cast<int>(members.size()));
      if (!failure_.ok()) child->Fail(failure_);
    }
    return child;
  }

 private:
  // Transfers are made by the batch: how many are under way at once differs from run to run, and runs after the first
  // ask for no memory.
  InProcessTransfer& Take(TransferPool& pool) {
    if (pool.first_free == nullptr) {
      constexpr int kBatch = 64;
      for (int i = 0; i < kBatch; ++i) {
        InProcessTransfer& made = pool.made.emplace_back(*this, pool);
        made.next_ = std::exchange(pool.first_free, &made);
      }
    }
    InProcessTransfer& free = *pool.first_free;
    pool.first_free = std::exchange(free.next_, nullptr);
    return free;
  }

  InProcessTransfer** EndOf(int receiver) {
    InProcessTransfer** end = &waiting_[receiver];
    while (*end != nullptr) end = &(*end)->next_;
    return end;
  }

  // The first of the waiting ones that is wanted, no longer among them; null if there is none.
  template <typename Wanted>
  InProcessTransfer* TakeWaiting(Wanted wanted, int receiver) {
    InProcessTransfer** at = &waiting_[receiver];
    while (*at != nullptr && !wanted(**at)) at = &(*at)->next_;
    InProcessTransfer* const found = *at;
    if (found != nullptr) *at = std::exchange(found->next_, nullptr);
    return found;
  }

  mutable std::mutex mutex_;
  std::vector<InProcessTransfer*> waiting_;      // By receiver: the first of a list.
  std::deque<std::condition_variable> changed_;  // By rank: for whoever waits there.
  std::map<std::pair<std::vector<int>, int>, std::shared_ptr<Hub>> children_;
  Status failure_;
};

Status InProcessTransfer::Wait(Deadline deadline) { return hub_.Await(*this, deadline); }
void InProcessTransfer::operator delete(InProcessTransfer* transfer, std::destroying_delete_t) {
  transfer->hub_.Drop(*transfer);
}

class InProcessMesh final : public Mesh {
 public:
  InProcessMesh(std::shared_ptr<Hub> hub, int rank, std::vector<int> job_ranks)
      : hub_(std::move(hub)), rank_(rank), job_ranks_(std::move(job_ranks)) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(job_ranks_.size()); }
  int JobRank(int peer) const override { return job_ranks_[peer]; }

  StatusOr<std::unique_ptr<PendingTransfer>> Receive(int peer, uint64_t tag, std::span<std::byte> bytes) override {
    return Post(peer, {peer, rank_, tag, /*sends=*/false, bytes.data(), bytes.size()});
  }
  StatusOr<std::unique_ptr<PendingTransfer>> Send(int peer, uint64_t tag, std::span<const std::byte> bytes) override {
    auto* data = const_cast<std::byte*>(bytes.data());
    return Post(peer, {rank_, peer, tag, /*sends=*/true, data, bytes.size()});
  }
  StatusOr<std::unique_ptr<PendingTransfer>> ReceiveSignal(int peer, std::span<std::byte> bytes) override {
    return Receive(peer, kSignal, bytes);
  }
  StatusOr<std::unique_ptr<PendingTransfer>> SendSignal(int peer, std::span<const std::byte> bytes) override {
    return Send(peer, kSignal, bytes);
  }

  StatusOr<std::unique_ptr<Mesh>> SubMesh(const std::vector<int>& members, Deadline) override {
    std::vector<int> job_ranks;
    int own = 0;
    for (const int member : members) {
      if (member == rank_) own = static_cast<int>(job_ranks.size());
      job_ranks.push_back(job_ranks_[member]);
    }
    return std::make_unique<InProcessMesh>(hub_->Child(members, sub_meshes_[members]++), own, std::move(job_ranks));
  }

  void Abort(const Status& why) override { hub_->Fail(why); }
  Status failure() const override { return hub_->failure(); }

 private:
  std::unique_ptr<PendingTransfer> Post(int peer, const Posted& posted) {
    return hub_->Post(transfers_, posted, job_ranks_[peer]);
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
  std::vector<int> job_ranks_;
  std::map<std::vector<int>, int> sub_meshes_;
  TransferPool transfers_;
};

}  // namespace

std::vector<std::unique_ptr<Mesh>> MakeInProcessMeshes(int size) {
  const auto hub = std::make_shared<Hub>(size);
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  std::vector<std::unique_ptr<Mesh>> meshes;
  for (int rank = 0; rank < size; ++rank) meshes.push_back(std::make_unique<InProcessMesh>(hub, rank, ranks));
  return meshes;
}

}  // namespace moeplan::executor
