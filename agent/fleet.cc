#include "agent/fleet.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "executor/launch/frames.h"
#include "models/text.h"

namespace moeplan {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point In(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

constexpr double kSettleS = 1;  // From the first rank that fails to the last one that notices.

bool IsReadable(int fd) {
  pollfd wanted = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&wanted, 1, /*timeout=*/0) > 0;
}

StatusOr<v1::RankReply> ReadReply(int fd, Clock::time_point deadline) {
  ASSIGN_OR_RETURN(const std::string frame, ReadFrame(fd, deadline));
  v1::RankReply reply;
  if (!reply.ParseFromString(frame))
    return InternalError("an answer that cannot be read; is every rank of the same build?");
  if (reply.has_error()) return Status(static_cast<StatusCode>(reply.error().code()), reply.error().message());
  return reply;
}

// The host names of the ranks, each once; empty where all are on one.
std::string SeveralHosts(const std::vector<v1::RankReply>& started) {
  std::vector<std::string> names;
  for (const v1::RankReply& reply : started) {
    const auto& facts = reply.started().provenance();
    const auto name = facts.find("hostname");
    if (name != facts.end() && std::ranges::find(names, name->second) == names.end()) names.push_back(name->second);
  }
  std::string text;
  if (names.size() < 2) return text;
  for (const std::string& name : names) text += StrCat(text.empty() ? "" : ", ", name);
  return text;
}

}  // namespace

StatusOr<Fleet> Fleet::Start(std::unique_ptr<Launch> launch, const FleetOptions& options) {
  Fleet fleet(std::move(launch), options);
  std::vector<v1::RankCommand> commands(fleet.ranks());
  for (int rank = 0; rank < fleet.ranks(); ++rank) {
    v1::RankCommand::Start& start = *commands[rank].mutable_start();
    start.set_rank(rank);
    start.set_nodes(fleet.launch_->nodes());
    start.set_ranks_per_node(fleet.launch_->ranks_per_node());
    start.set_deadline_s(options.collective_deadline_s);
  }
  ASSIGN_OR_RETURN(const std::vector<v1::RankReply> started,
                   fleet.CallEach(commands, "start", {options.start_timeout_s, options.start_timeout_s}));
  v1::RankCommand connect;
  for (const v1::RankReply& reply : started) connect.mutable_connect()->add_addresses(reply.started().address());
  fleet.provenance_ = options.provenance;
  for (const auto& [name, value] : started.front().started().provenance()) fleet.provenance_[name] = value;
  if (const std::string hosts = SeveralHosts(started); !hosts.empty()) fleet.provenance_["hosts"] = hosts;
  ASSIGN_OR_RETURN(const std::vector<v1::RankReply> connected, fleet.Call(connect, "connect", options.start_timeout_s));
  return fleet;
}

StatusOr<std::vector<v1::RankReply>> Fleet::Call(const v1::RankCommand& command, std::string_view what,
                                                 double timeout_s) {
  return CallEach(std::vector<v1::RankCommand>(ranks(), command), what, {.first_s = timeout_s, .others_s = timeout_s});
}

StatusOr<std::vector<v1::RankReply>> Fleet::CallInStep(const v1::RankCommand& command, std::string_view what,
                                                       double timeout_s) {
  return CallEach(std::vector<v1::RankCommand>(ranks(), command), what,
                  {.first_s = timeout_s, .others_s = options_.collective_deadline_s});
}

StatusOr<std::vector<v1::RankReply>> Fleet::CallEach(const std::vector<v1::RankCommand>& commands,
                                                     std::string_view what, Patience patience) {
  for (int rank = 0; rank < ranks(); ++rank) {
    const Status sent = WriteFrame(launch_->WriteFd(rank), commands[rank].SerializeAsString());
    if (!sent.ok()) return RootCause(rank, sent, std::vector<bool>(ranks(), true));
  }
  std::vector<v1::RankReply> replies(ranks());
  std::vector<bool> answered(ranks(), false);
  Clock::time_point deadline = In(patience.first_s);
  for (int missing = ranks(); missing > 0;) {
    std::vector<pollfd> wanted;
    std::vector<int> waiting;
    for (int rank = 0; rank < ranks(); ++rank) {
      if (answered[rank]) continue;
      wanted.push_back({.fd = launch_->ReadFd(rank), .events = POLLIN, .revents = 0});
      waiting.push_back(rank);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 || poll(wanted.data(), wanted.size(), static_cast<int>(left)) == 0) {
      const std::string late = missing == ranks()
                                   ? StrCat(" within ", patience.first_s, " s")
                                   : StrCat(" within ", patience.others_s, " s of the first rank that did");
      return DeadlineExceeded(StrCat("rank ", waiting.front(), " did not answer", late, ": ", what));
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].revents == 0) continue;
      StatusOr<v1::RankReply> reply = ReadReply(wanted[i].fd, deadline);
      if (!reply.ok()) {
        answered[waiting[i]] = true;
        return RootCause(waiting[i], reply.status(), answered).Within(what);
      }
      if (missing == ranks()) deadline = std::min(deadline, In(patience.others_s));
      replies[waiting[i]] = *std::move(reply);
      answered[waiting[i]] = true;
      --missing;
    }
  }
  return replies;
}

Status Fleet::RootCause(int rank, const Status& first, std::vector<bool> answered) {
  const bool network = first.code() == StatusCode::kPeerLost || first.code() == StatusCode::kDeadlineExceeded;
  if (!network) return first.Within(StrCat("rank ", rank));
  // The process that ended may be noticed by its peers before it is by us. One that hangs holds up others, which are
  // blamed in their turn: but those still answer.
  std::string silent;
  for (const Clock::time_point until = In(kSettleS); Clock::now() < until;) {
    silent.clear();
    for (int other = 0; other < ranks(); ++other) {
      if (const std::string end = launch_->EndOf(other); !end.empty()) {
        const std::string seen = other == rank ? "" : StrCat(" (rank ", rank, ": ", first.message(), ")");
        return PeerLost(StrCat("rank ", other, " is lost: its process was ", end, seen));
      }
      if (!answered[other]) answered[other] = IsReadable(launch_->ReadFd(other));
      if (!answered[other]) silent += StrCat(silent.empty() ? "" : ", ", other);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (silent.empty()) return first.Within(StrCat("rank ", rank));
  return Status(first.code(), StrCat("no answer from rank ", silent, " (rank ", rank, ": ", first.message(), ")"));
}

}  // namespace moeplan
