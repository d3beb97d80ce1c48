#include "agent/rank_links.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "executor/launch/frames.h"
#include "executor/owned_fd.h"
#include "models/check.h"

namespace moeplan::agent {
namespace {

using Clock = std::chrono::steady_clock;

class LaunchLinks final : public RankLinks {
 public:
  explicit LaunchLinks(std::unique_ptr<executor::Launch> launch)
      : launch_(std::move(launch)), epoll_(epoll_create1(EPOLL_CLOEXEC)), armed_(launch_->ranks(), false) {
    MOEPLAN_CHECK(epoll_.get() >= 0);
    for (int rank = 0; rank < ranks(); ++rank) Control(EPOLL_CTL_ADD, rank, /*events=*/0);
  }

  int nodes() const override { return launch_->nodes(); }
  int ranks_per_node() const override { return launch_->ranks_per_node(); }

  std::optional<Unsent> Send(std::span<const v1::RankCommand> commands) override {
    const bool one_for_all = commands.size() == 1;
    std::string frame = commands.front().SerializeAsString();
    for (int rank = 0; rank < ranks(); ++rank) {
      if (!one_for_all) frame = commands[rank].SerializeAsString();
      if (Status sent = executor::WriteFrame(launch_->WriteFd(rank), frame); !sent.ok())
        return Unsent{.rank = rank, .why = std::move(sent), .reached = rank};
    }
    return std::nullopt;
  }

  std::vector<int> Await(const std::vector<bool>& wanted, Moment until) override {
    for (int rank = 0; rank < ranks(); ++rank) {
      if (wanted[rank] && !armed_[rank]) Arm(rank);
    }
    std::vector<epoll_event> events(ranks());
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
      std::vector<int> ready;
      for (int i = 0; i < count; ++i) {
        const int rank = static_cast<int>(events[i].data.u32);
        armed_[rank] = false;  // It tells once; one that nobody wants now is asked for again later.
        if (wanted[rank]) ready.push_back(rank);
      }
      if (!ready.empty() || (count <= 0 && Clock::now() >= until)) return ready;
    }
  }

  StatusOr<v1::RankReply> Receive(int rank) override {
    ASSIGN_OR_RETURN(const std::string frame,
                     executor::ReadFrame(launch_->ReadFd(rank), Clock::now() + executor::kWholeFrame));
    v1::RankReply reply;
    if (reply.ParseFromString(frame)) return reply;
    return InternalError("an answer that cannot be read; is every rank of the same build?");
  }

  std::string EndOf(int rank) override { return launch_->EndOf(rank); }
  int ProcessOf(int rank) const override { return launch_->ProcessOf(rank); }

 private:
  void Arm(int rank) {
    Control(EPOLL_CTL_MOD, rank, EPOLLIN | EPOLLONESHOT);
    armed_[rank] = true;
  }

  void Control(int operation, int rank, uint32_t events) {
    epoll_event event = {.events = events | EPOLLONESHOT, .data = {.u32 = static_cast<uint32_t>(rank)}};
    const int done = epoll_ctl(epoll_.get(), operation, launch_->ReadFd(rank), &event);
    MOEPLAN_CHECK(done == 0);
  }

  const std::unique_ptr<executor::Launch> launch_;
  const executor::OwnedFd epoll_;
  std::vector<bool> armed_;  // By rank: whether its stream tells when something comes in.
};

}  // namespace

std::unique_ptr<RankLinks> LinksOf(std::unique_ptr<executor::Launch> launch) {
  return std::make_unique<LaunchLinks>(std::move(launch));
}

}  // namespace moeplan::agent
