#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "executor/host/mesh.h"
#include "models/text.h"

namespace moeplan {
namespace {

constexpr uint64_t kSignal = ~uint64_t{0};

// One message: whoever of sender and receiver comes second copies.
struct Message {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t bytes = 0;
  bool done = false;
  bool cancelled = false;
};

// What the ranks of a mesh share.
class Hub {
 public:
  using Channel = std::tuple<int, int, uint64_t>;  // Sender, receiver, tag.

  std::shared_ptr<Message> Post(const Channel& channel, const std::byte* from, std::byte* to, size_t bytes) {
    std::unique_lock lock(mutex_);
    auto& others = from != nullptr ? receivers_ : senders_;
    const auto waiting = others.find(channel);
    while (waiting != others.end() && !waiting->second.empty() && waiting->second.front()->cancelled)
      waiting->second.pop_front();
    if (waiting == others.end() || waiting->second.empty()) {
      auto message = std::make_shared<Message>(Message{.from = from, .to = to, .bytes = bytes});
      (from != nullptr ? senders_ : receivers_)[channel].push_back(message);
      return message;
    }
    const std::shared_ptr<Message> message = waiting->second.front();
    waiting->second.pop_front();
    if (waiting->second.empty()) others.erase(waiting);  // Tags are used once; keep none behind.
    lock.unlock();
    std::memcpy(to != nullptr ? to : message->to, from != nullptr ? from : message->from,
                std::min(bytes, message->bytes));
    lock.lock();
    message->done = true;
    changed_.notify_all();
    return message;
  }

  Status Await(Message& message, Deadline deadline, int job_rank) {
    std::unique_lock lock(mutex_);
    const bool in_time = changed_.wait_until(lock, deadline, [&] { return message.done || !failure_.ok(); });
    if (message.done) return OkStatus();
    if (!failure_.ok()) return failure_;
    return in_time ? OkStatus() : DeadlineExceeded(StrCat("rank ", job_rank, " did not answer"));
  }

  void Cancel(Message& message) {
    const std::lock_guard lock(mutex_);
    message.cancelled = true;
  }

  void Fail(const Status& why) {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = why;
    changed_.notify_all();
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
      child = std::make_shared<Hub>();
      if (!failure_.ok()) child->Fail(failure_);
    }
    return child;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Channel, std::deque<std::shared_ptr<Message>>> senders_, receivers_;
  std::map<std::pair<std::vector<int>, int>, std::shared_ptr<Hub>> children_;
  Status failure_;
};

class InProcessTransfer final : public PendingTransfer {
 public:
  InProcessTransfer(std::shared_ptr<Hub> hub, std::shared_ptr<Message> message, int job_rank)
      : hub_(std::move(hub)), message_(std::move(message)), job_rank_(job_rank) {}
  ~InProcessTransfer() override { hub_->Cancel(*message_); }

  Status Wait(Deadline deadline) override { return hub_->Await(*message_, deadline, job_rank_); }

 private:
  std::shared_ptr<Hub> hub_;
  std::shared_ptr<Message> message_;
  int job_rank_;
};

class InProcessMesh final : public Mesh {
 public:
  InProcessMesh(std::shared_ptr<Hub> hub, int rank, std::vector<int> job_ranks)
      : hub_(std::move(hub)), rank_(rank), job_ranks_(std::move(job_ranks)) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(job_ranks_.size()); }
  int JobRank(int peer) const override { return job_ranks_[peer]; }

  StatusOr<std::unique_ptr<PendingTransfer>> Receive(int peer, uint64_t tag, std::span<std::byte> bytes) override {
    return Post({peer, rank_, tag}, peer, nullptr, bytes.data(), bytes.size());
  }
  StatusOr<std::unique_ptr<PendingTransfer>> Send(int peer, uint64_t tag, std::span<const std::byte> bytes) override {
    return Post({rank_, peer, tag}, peer, bytes.data(), nullptr, bytes.size());
  }
  StatusOr<std::unique_ptr<PendingTransfer>> ReceiveSignal(int peer) override {
    return Post({peer, rank_, kSignal}, peer, nullptr, &signal_, 0);
  }
  StatusOr<std::unique_ptr<PendingTransfer>> SendSignal(int peer) override {
    return Post({rank_, peer, kSignal}, peer, &signal_, nullptr, 0);
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
  std::unique_ptr<PendingTransfer> Post(const Hub::Channel& channel, int peer, const std::byte* from, std::byte* to,
                                        size_t bytes) {
    return std::make_unique<InProcessTransfer>(hub_, hub_->Post(channel, from, to, bytes), job_ranks_[peer]);
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
  std::vector<int> job_ranks_;
  std::map<std::vector<int>, int> sub_meshes_;
  std::byte signal_{};
};

}  // namespace

std::vector<std::unique_ptr<Mesh>> MakeInProcessMeshes(int size) {
  const auto hub = std::make_shared<Hub>();
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  std::vector<std::unique_ptr<Mesh>> meshes;
  for (int rank = 0; rank < size; ++rank) meshes.push_back(std::make_unique<InProcessMesh>(hub, rank, ranks));
  return meshes;
}

}  // namespace moeplan
