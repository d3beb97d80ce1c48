#include "agent/fleet.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "executor/launch/frames.h"
#include "models/text.h"

namespace moeplan {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point In(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

constexpr double kSettleS = 1;       // From the first rank that fails to the last one that notices.
constexpr double kWholeAnswerS = 5;  // From the first byte of an answer to its last.

bool IsReadable(int fd, Clock::time_point until = {}) {
  pollfd wanted = {.fd = fd, .events = POLLIN, .revents = 0};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  return poll(&wanted, 1, static_cast<int>(std::max<int64_t>(left, 0))) > 0;
}

std::string Listed(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += StrCat(text.empty() ? "" : ", ", rank);
  return text;
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
  ASSIGN_OR_RETURN(const std::vector<v1::RankReply> started, fleet.Connect());
  // What connecting told comes on top of what was known before.
  Provenance known = options.provenance;
  for (const auto& [name, value] : started.front().started().provenance()) known[name] = value;
  fleet.provenance_.merge(known);
  fleet.device_memory_bytes_ = started.front().started().device_memory_bytes();
  for (const v1::RankReply& reply : started) {
    fleet.device_memory_bytes_ = std::min(fleet.device_memory_bytes_, reply.started().device_memory_bytes());
  }
  if (const std::string hosts = SeveralHosts(started); !hosts.empty()) fleet.provenance_["hosts"] = hosts;
  return fleet;
}

Status Fleet::Restart() {
  const Clock::time_point deadline = In(options_.start_timeout_s);
  Status lost;
  for (int rank = 0; rank < ranks(); ++rank) {
    const Status owed = DropAnswers(rank, deadline);
    if (const std::string end = launch_->EndOf(rank); !end.empty()) {
      lost = PeerLost(StrCat("rank ", rank, " is lost: its process was ", end));
    } else {
      RETURN_IF_ERROR(owed.Within(StrCat("restart: rank ", rank)));
    }
  }
  RETURN_IF_ERROR(lost);
  return Connect().status();
}

StatusOr<std::vector<v1::RankReply>> Fleet::Connect() {
  std::vector<v1::RankCommand> commands(ranks());
  for (int rank = 0; rank < ranks(); ++rank) {
    v1::RankCommand::Start& start = *commands[rank].mutable_start();
    start.set_rank(rank);
    start.set_nodes(launch_->nodes());
    start.set_ranks_per_node(launch_->ranks_per_node());
    start.set_deadline_s(options_.collective_deadline_s);
    start.set_backend(options_.backend);
  }
  ASSIGN_OR_RETURN(std::vector<v1::RankReply> started,
                   CallEach(commands, "start", {options_.start_timeout_s, options_.start_timeout_s}));
  v1::RankCommand connect;
  for (const v1::RankReply& reply : started) connect.mutable_connect()->add_addresses(reply.started().address());
  ASSIGN_OR_RETURN(const std::vector<v1::RankReply> connected, Call(connect, "connect", options_.start_timeout_s));
  limits_ctas_ = connected.front().connected().limits_ctas();
  repeats_times_ = connected.front().connected().repeats_times();
  for (const auto& [name, value] : connected.front().connected().provenance()) provenance_[name] = value;
  return started;
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
    const Status sent = Send(rank, commands[rank]);
    if (!sent.ok()) return RootCause(rank, sent, std::vector<bool>(ranks(), true));
  }
  std::vector<v1::RankReply> replies(ranks());
  std::vector<bool> answered(ranks(), false);
  Clock::time_point deadline = In(patience.first_s);
  bool settling = false;
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
      // Of those that are late one may hold up the others, which are about to say so.
      if (!std::exchange(settling, true)) {
        deadline = In(kSettleS);
        continue;
      }
      const std::string late = missing == ranks()
                                   ? StrCat(" within ", patience.first_s, " s")
                                   : StrCat(" within ", patience.others_s, " s of the first rank that did");
      return DeadlineExceeded(StrCat("rank ", Listed(waiting), " did not answer", late, ": ", what));
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].revents == 0) continue;
      StatusOr<v1::RankReply> reply = Receive(waiting[i]);
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

Status Fleet::Send(int rank, const v1::RankCommand& command) {
  StreamState& stream = streams_[rank];
  stream.broken = WriteFrame(launch_->WriteFd(rank), command.SerializeAsString());
  ++stream.unanswered;
  return stream.broken;
}

StatusOr<v1::RankReply> Fleet::Receive(int rank) {
  StreamState& stream = streams_[rank];
  const StatusOr<std::string> frame = ReadFrame(launch_->ReadFd(rank), In(kWholeAnswerS));
  stream.broken = frame.status();
  RETURN_IF_ERROR(stream.broken);
  --stream.unanswered;
  v1::RankReply reply;
  if (!reply.ParseFromString(*frame))
    return InternalError("an answer that cannot be read; is every rank of the same build?");
  if (reply.has_error()) return Status(static_cast<StatusCode>(reply.error().code()), reply.error().message());
  return reply;
}

Status Fleet::DropAnswers(int rank, Clock::time_point deadline) {
  const StreamState& stream = streams_[rank];
  while (stream.broken.ok() && stream.unanswered > 0) {
    if (!IsReadable(launch_->ReadFd(rank), deadline)) {
      return DeadlineExceeded(StrCat("no answer to an earlier command within ", options_.start_timeout_s, " s"));
    }
    (void)Receive(rank);
  }
  return stream.broken;
}

Status Fleet::RootCause(int rank, const Status& first, std::vector<bool> answered) {
  const bool network = first.code() == StatusCode::kPeerLost || first.code() == StatusCode::kDeadlineExceeded;
  if (!network) return first.Within(StrCat("rank ", rank));
  // The process that ended may be noticed by its peers before it is by us. One that hangs holds up others, which are
  // blamed in their turn: but those still answer.
  std::vector<int> silent;
  for (const Clock::time_point until = In(kSettleS); Clock::now() < until;) {
    silent.clear();
    for (int other = 0; other < ranks(); ++other) {
      if (const std::string end = launch_->EndOf(other); !end.empty()) {
        const std::string seen = other == rank ? "" : StrCat(" (rank ", rank, ": ", first.message(), ")");
        return PeerLost(StrCat("rank ", other, " is lost: its process was ", end, seen));
      }
      if (!answered[other]) answered[other] = IsReadable(launch_->ReadFd(other));
      if (!answered[other]) silent.push_back(other);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (silent.empty()) return first.Within(StrCat("rank ", rank));
  return Status(first.code(),
                StrCat("no answer from rank ", Listed(silent), " (rank ", rank, ": ", first.message(), ")"));
}

}  // namespace moeplan
