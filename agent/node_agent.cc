#include "agent/node_agent.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "executor/launch/frames.h"
#include "executor/owned_fd.h"
#include "models/check.h"
#include "models/seconds_from_now.h"
#include "models/text.h"

namespace moeplan::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostInbox = 4096;

// Tells whether the planner will never take this agent, however often it connects.
bool IsFinal(const Status& why) {
  return why.code() == StatusCode::kInfeasible || why.code() == StatusCode::kInvalidInput ||
         why.code() == StatusCode::kPermissionDenied || why.code() == StatusCode::kUnimplemented;
}

// Hands what came in on threads of the transport to the agent's thread.
class Inbox {
 public:
  using Item = std::variant<v1::AttachResponse, Status>;  // A message, or the end of the connection.

  Inbox() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { MOEPLAN_CHECK(wake_.get() >= 0); }

  int wake_fd() const { return wake_.get(); }

  // Returns false when there is no room.
  bool Add(Item item) {
    const std::scoped_lock lock(mutex_);
    if (items_.size() == kMostInbox && std::holds_alternative<v1::AttachResponse>(item)) return false;
    items_.push_back(std::move(item));
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof one);
    return true;
  }

  std::deque<Item> TakeAll() {
    const std::scoped_lock lock(mutex_);
    uint64_t count = 0;
    (void)!read(wake_.get(), &count, sizeof count);
    return std::exchange(items_, {});
  }

 private:
  const executor::OwnedFd wake_;
  std::mutex mutex_;
  std::deque<Item> items_;  // Guarded by mutex_.
};

class NodeAgent {
 public:
  explicit NodeAgent(NodeAgentOptions options)
      : options_(std::move(options)), random_(options_.seed), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    MOEPLAN_CHECK(epoll_.get() >= 0);
    Watch(options_.stop_fd, kStop);
    Watch(inbox_.wake_fd(), kInbox);
    if (options_.kept_ranks) Hold(std::move(options_.kept_ranks));
  }

  Status Run() {
    while (true) {
      if (connection_ == nullptr && Clock::now() >= next_try_) RETURN_IF_ERROR(Connect());
      std::array<epoll_event, 64> events;
      const int count = epoll_wait(epoll_.get(), events.data(), events.size(), WaitMs());
      for (int i = 0; i < count; ++i) {
        const uint32_t source = events[i].data.u32;
        if (source == kStop) return OkStatus();
        if (source == kInbox) {
          RETURN_IF_ERROR(TakeInbox());
        } else if (ranks_ != nullptr) {
          RETURN_IF_ERROR(ReadAnswer(static_cast<int>(source)));
        }
      }
      Beat();
    }
  }

 private:
  static constexpr uint32_t kStop = 0xffffffff, kInbox = 0xfffffffe;  // Above all ranks.

  // The agent's account of one of its ranks.
  struct HeldRank {
    int owed = 0;     // Answers that have not come.
    int dropped = 0;  // As many of them, the oldest, belong to sessions that have ended.
    bool lost = false;
  };

  void Watch(int fd, uint32_t source) {
    epoll_event event = {.events = EPOLLIN, .data = {.u32 = source}};
    const int done = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
    MOEPLAN_CHECK(done == 0);
  }

  bool keeps_ranks() const { return options_.launch == nullptr; }
  int first_rank() const { return options_.registration.node() * options_.registration.ranks_per_node(); }

  // How long to wait, at most, when no descriptor becomes readable.
  int WaitMs() const {
    const Clock::time_point until = connection_ == nullptr ? next_try_ : next_beat_;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 60000));
  }

  Status Connect() {
    auto connection = options_.connect(options_.registration,
                                       {.received =
                                            [this](v1::AttachResponse message) {
                                              if (!inbox_.Add(std::move(message)))
                                                (void)inbox_.Add(Unavailable("more was asked than can be done"));
                                            },
                                        .ended = [this](const Status& why) { (void)inbox_.Add(why); }});
    if (!connection.ok()) return Disconnected(connection.status());
    connection_ = *std::move(connection);
    next_beat_ = SecondsFromNow(kFirstWelcomeS);
    silent_until_ = next_beat_;
    welcomed_ = false;
    return OkStatus();
  }

  Status Disconnected(const Status& why) {
    connection_.reset();
    (void)inbox_.TakeAll();  // The old connection can add nothing any more.
    EndSession();
    if (IsFinal(why)) return why;
    pause_s_ = std::clamp(2 * pause_s_, options_.first_pause_s, options_.longest_pause_s);
    next_try_ = SecondsFromNow(pause_s_ * std::uniform_real_distribution<double>(0.5, 1)(random_));
    if (std::exchange(said_, why.message()) != why.message()) {
      options_.log(StrCat(why.message(), "; trying again until it goes well"));
    }
    return OkStatus();
  }

  Status TakeInbox() {
    for (Inbox::Item& item : inbox_.TakeAll()) {
      if (const auto* why = std::get_if<Status>(&item)) return Disconnected(*why);
      Obey(std::get<v1::AttachResponse>(item));
    }
    return OkStatus();
  }

  void Obey(const v1::AttachResponse& message) {
    silent_until_ = SecondsFromNow(lost_after_s_);
    switch (message.what_case()) {
      case v1::AttachResponse::kWelcome: return Welcomed(message.welcome());
      case v1::AttachResponse::kStartRanks: return StartSession(message.start_ranks().session());
      case v1::AttachResponse::kStopRanks:
        if (message.stop_ranks().session() == session_) EndSession();
        return;
      case v1::AttachResponse::kOrder:
        if (message.order().session() == session_) Pass(message.order());
        return;
      case v1::AttachResponse::kHeartbeat:
      case v1::AttachResponse::WHAT_NOT_SET: return;
    }
  }

  void Welcomed(const v1::AttachResponse::Welcome& welcome) {
    beat_s_ = welcome.heartbeat_s();
    lost_after_s_ = welcome.lost_after_s();
    silent_until_ = SecondsFromNow(lost_after_s_);
    next_beat_ = Clock::now();
    welcomed_ = true;
    pause_s_ = 0;
    said_.clear();
    options_.log(StrCat("connected to the planner at ", options_.planner));
  }

  void Beat() {
    if (connection_ == nullptr || Clock::now() < next_beat_) return;
    if (Clock::now() >= silent_until_) {
      connection_->End();  // That it has ended is told by the inbox.
      next_beat_ = SecondsFromNow(kFirstWelcomeS);
      return;
    }
    if (welcomed_) {
      const auto seconds = [](auto moment) { return std::chrono::duration<double>(moment.time_since_epoch()).count(); };
      v1::AttachRequest message;
      message.mutable_heartbeat()->set_wall_s(seconds(std::chrono::system_clock::now()));
      message.mutable_heartbeat()->set_steady_s(seconds(Clock::now()));
      (void)connection_->Send(std::move(message));
    }
    next_beat_ = SecondsFromNow(beat_s_);
  }

  void StartSession(int session) {
    EndSession();
    session_ = session;
    if (keeps_ranks()) return;
    StatusOr<std::unique_ptr<executor::Launch>> launched = options_.launch();
    if (launched.ok()) return Hold(*std::move(launched));
    SayLost(/*rank=*/-1, StrCat("not started: ", launched.status().message()));
  }

  void EndSession() {
    session_ = 0;
    if (keeps_ranks()) {
      for (HeldRank& rank : held_) rank.dropped = rank.owed;
      return;
    }
    held_.clear();
    ranks_.reset();  // A descriptor that is closed is no longer watched.
  }

  void Hold(std::unique_ptr<executor::Launch> ranks) {
    ranks_ = std::move(ranks);
    held_.assign(ranks_->ranks(), {});
    for (int rank = 0; rank < ranks_->ranks(); ++rank) Watch(ranks_->ReadFd(rank), static_cast<uint32_t>(rank));
  }

  void Pass(const v1::AttachResponse::Order& order) {
    if (ranks_ == nullptr) return;  // They could not be started, as was said.
    if (order.commands_size() != 1 && order.commands_size() != ranks_->ranks()) {
      return SayLost(-1, StrCat("given ", order.commands_size(), " commands for ", ranks_->ranks(), " ranks"));
    }
    for (int rank = 0; rank < ranks_->ranks(); ++rank) {
      const v1::RankCommand& command = order.commands(order.commands_size() == 1 ? 0 : rank);
      if (held_[rank].lost) continue;
      ++held_[rank].owed;
      // That it could not be written is known by the end of the other stream.
      (void)executor::WriteFrame(ranks_->WriteFd(rank), command.SerializeAsString());
    }
  }

  Status ReadAnswer(int rank) {
    HeldRank& held = held_[rank];
    if (held.lost) return OkStatus();
    const StatusOr<std::string> frame = executor::ReadFrame(ranks_->ReadFd(rank), Clock::now() + executor::kWholeFrame);
    if (!frame.ok()) return Lost(rank, frame.status());
    held.owed = std::max(0, held.owed - 1);
    if (held.dropped > 0) {
      --held.dropped;
      return OkStatus();
    }
    v1::AttachRequest message;
    message.mutable_answer()->set_session(session_);
    message.mutable_answer()->set_rank(first_rank() + rank);
    if (!message.mutable_answer()->mutable_reply()->ParseFromString(*frame)) {
      return Lost(rank, InternalError("an answer that cannot be read"));
    }
    if (connection_ != nullptr && session_ != 0) (void)connection_->Send(std::move(message));
    return OkStatus();
  }

  Status Lost(int rank, const Status& why) {
    held_[rank].lost = true;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, ranks_->ReadFd(rank), nullptr);
    std::string how = ranks_->EndOf(rank);
    for (int i = 0; how.empty() && i < 100; ++i) {  // Its stream ends a moment before it does.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      how = ranks_->EndOf(rank);
    }
    if (how.empty()) how = StrCat("given up: ", why.message());
    SayLost(first_rank() + rank, how);
    return keeps_ranks() ? PeerLost(StrCat("rank ", first_rank() + rank, " was ", how)) : OkStatus();
  }

  void SayLost(int rank, const std::string& how) {
    options_.log(rank < 0 ? StrCat("the ranks were ", how) : StrCat("rank ", rank, " was ", how));
    if (connection_ == nullptr || session_ == 0) return;
    v1::AttachRequest message;
    message.mutable_ranks_lost()->set_session(session_);
    message.mutable_ranks_lost()->set_rank(rank);
    message.mutable_ranks_lost()->set_how(how);
    (void)connection_->Send(std::move(message));
  }

  static constexpr double kFirstWelcomeS =
      10;  // The planner's first message comes this long after the connection, at most.

  NodeAgentOptions options_;
  std::mt19937_64 random_;
  Inbox inbox_;
  const executor::OwnedFd epoll_;
  std::unique_ptr<executor::Launch> ranks_;
  std::vector<HeldRank> held_;
  int session_ = 0;  // 0: none.

  Clock::time_point next_try_, next_beat_, silent_until_;
  double pause_s_ = 0, beat_s_ = 5, lost_after_s_ = 15;
  bool welcomed_ = false;
  std::string said_;                             // The last error that was logged.
  std::unique_ptr<AgentConnection> connection_;  // The last member, so that its callbacks end before what they use.
};

}  // namespace

Status RunNodeAgent(NodeAgentOptions options) { return NodeAgent(std::move(options)).Run(); }

}  // namespace moeplan::agent
