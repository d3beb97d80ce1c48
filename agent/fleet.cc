#include "agent/fleet.h"

#include <algorithm>
#include <chrono>
#include <ranges>
#include <thread>
#include <utility>

#include "models/cost/plausible.h"
#include "models/seconds_from_now.h"
#include "models/text.h"

namespace moeplan::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSettleS = 1;  // The last rank notices a failure so much later than the first.
// Wants `rank` alone.
std::vector<bool> Only(int rank, int ranks) {
  std::vector<bool> wanted(ranks, false);
  wanted[rank] = true;
  return wanted;
}

std::string Listed(const std::vector<bool>& ranks) {
  std::string text;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank]) text += StrCat(text.empty() ? "" : ", ", rank);
  }
  return text;
}

// Lists the host names of the ranks, each once; empty where all are on one.
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

StatusOr<Fleet> Fleet::Start(std::unique_ptr<executor::Launch> launch, const FleetOptions& options) {
  return Start(LinksOf(std::move(launch)), options);
}

StatusOr<Fleet> Fleet::Start(std::unique_ptr<RankLinks> ranks, const FleetOptions& options) {
  Fleet fleet(std::move(ranks), options);
  ASSIGN_OR_RETURN(const std::vector<v1::RankReply> started, fleet.Connect());
  // Connect has filled in provenance_, which counts more than what was known before.
  Provenance known = options.provenance;
  for (const auto& [name, value] : started.front().started().provenance()) known[name] = value;
  fleet.provenance_.merge(known);
  fleet.LearnCluster(started);
  if (const std::string hosts = SeveralHosts(started); !hosts.empty()) fleet.provenance_["hosts"] = hosts;
  return fleet;
}

void Fleet::LearnCluster(std::span<const v1::RankReply> started) {
  const auto least = [&](auto of) { return std::ranges::min(started | std::views::transform(of)); };
  cluster_.device_memory_bytes =
      least([](const v1::RankReply& reply) { return reply.started().device_memory_bytes(); });
  // No rank sends faster than the fastest, as long as all are known.
  const auto most = [&](auto of) {
    return least(of) > 0 ? std::ranges::max(started | std::views::transform(of)) : 0.0;
  };
  cluster_.node_link_bytes_per_s =
      most([](const v1::RankReply& reply) { return reply.started().node_link_bytes_per_s(); });
  cluster_.network_bytes_per_s = most([](const v1::RankReply& reply) { return reply.started().network_bytes_per_s(); });
  if (cluster_.network_bytes_per_s == 0) cluster_.network_bytes_per_s = options_.network_bytes_per_s;
  // Ranks that agents keep answer for themselves: a rate that no machine has says nothing.
  Cluster possible = cluster_;
  ForgetImpossible(possible);
  cluster_.node_link_bytes_per_s = possible.node_link_bytes_per_s;
  cluster_.network_bytes_per_s = possible.network_bytes_per_s;
}

Status Fleet::Restart() {
  const Clock::time_point deadline = SecondsFromNow(options_.start_timeout_s);
  Status lost;
  for (int rank = 0; rank < ranks(); ++rank) {
    const Status owed = DropAnswers(rank, deadline);
    if (const std::string end = ranks_->EndOf(rank); !end.empty()) {
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
    start.set_nodes(ranks_->nodes());
    start.set_ranks_per_node(ranks_->ranks_per_node());
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
  return CallEach({&command, 1}, what, {.first_s = timeout_s, .others_s = timeout_s});
}

StatusOr<std::vector<v1::RankReply>> Fleet::CallInStep(const v1::RankCommand& command, std::string_view what,
                                                       double timeout_s) {
  return CallEach({&command, 1}, what, {.first_s = timeout_s, .others_s = options_.collective_deadline_s});
}

StatusOr<std::vector<v1::RankReply>> Fleet::CallEach(std::span<const v1::RankCommand> commands, std::string_view what,
                                                     Patience patience) {
  if (const auto unsent = Send(commands)) return RootCause(unsent->rank, unsent->why, std::vector<bool>(ranks(), true));
  std::vector<v1::RankReply> replies(ranks());
  std::vector<bool> missing(ranks(), true);
  Clock::time_point deadline = SecondsFromNow(patience.first_s);
  bool settling = false;
  for (int count = ranks(); count > 0;) {
    const std::vector<int> ready = ranks_->Await(missing, deadline);
    if (ready.empty()) {
      // One late rank may hold up the others, which are about to say so.
      if (!std::exchange(settling, true)) {
        deadline = SecondsFromNow(kSettleS);
        continue;
      }
      const std::string late = count == ranks()
                                   ? StrCat(" within ", patience.first_s, " s")
                                   : StrCat(" within ", patience.others_s, " s of the first rank that did");
      return DeadlineExceeded(StrCat("rank ", Listed(missing), " did not answer", late, ": ", what));
    }
    for (const int rank : ready) {
      StatusOr<v1::RankReply> reply = Receive(rank);
      if (!reply.ok()) {
        std::vector<bool> answered = missing;
        answered.flip();
        return RootCause(rank, reply.status(), std::move(answered)).Within(what);
      }
      if (count == ranks()) deadline = std::min(deadline, SecondsFromNow(patience.others_s));
      replies[rank] = *std::move(reply);
      missing[rank] = false;
      --count;
    }
  }
  return replies;
}

std::optional<RankLinks::Unsent> Fleet::Send(std::span<const v1::RankCommand> commands) {
  std::optional<RankLinks::Unsent> unsent = ranks_->Send(commands);
  const int sent = unsent ? unsent->reached : ranks();
  for (int rank = 0; rank < sent; ++rank) ++streams_[rank].unanswered;
  if (unsent) streams_[unsent->rank].broken = unsent->why;
  return unsent;
}

StatusOr<v1::RankReply> Fleet::Receive(int rank) {
  StreamState& stream = streams_[rank];
  StatusOr<v1::RankReply> reply = ranks_->Receive(rank);
  stream.broken = reply.status();
  RETURN_IF_ERROR(stream.broken);
  --stream.unanswered;
  if (reply->has_error()) return Status(static_cast<StatusCode>(reply->error().code()), reply->error().message());
  return reply;
}

Status Fleet::DropAnswers(int rank, Clock::time_point deadline) {
  const StreamState& stream = streams_[rank];
  while (stream.broken.ok() && stream.unanswered > 0) {
    if (ranks_->Await(Only(rank, ranks()), deadline).empty()) {
      return DeadlineExceeded(StrCat("no answer to an earlier command within ", options_.start_timeout_s, " s"));
    }
    (void)Receive(rank);
  }
  return stream.broken;
}

Status Fleet::RootCause(int rank, const Status& first, std::vector<bool> answered) {
  const bool network = first.code() == StatusCode::kPeerLost || first.code() == StatusCode::kDeadlineExceeded;
  if (!network) return first.Within(StrCat("rank ", rank));
  // The peers of a process may notice its end before this one does. A rank that hangs holds up others, which their own
  // peers then blame, but the ranks that are held up still answer.
  std::vector<bool> silent = std::move(answered);
  silent.flip();
  silent[rank] = false;
  for (const Clock::time_point until = SecondsFromNow(kSettleS); Clock::now() < until;) {
    for (int other = 0; other < ranks(); ++other) {
      if (const std::string end = ranks_->EndOf(other); !end.empty()) {
        const std::string seen = other == rank ? "" : StrCat(" (rank ", rank, ": ", first.message(), ")");
        return PeerLost(StrCat("rank ", other, " is lost: its process was ", end, seen));
      }
    }
    for (const int other : ranks_->Await(silent, Clock::now())) silent[other] = false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (std::ranges::find(silent, true) == silent.end()) return first.Within(StrCat("rank ", rank));
  return Status(first.code(),
                StrCat("no answer from rank ", Listed(silent), " (rank ", rank, ": ", first.message(), ")"));
}

}  // namespace moeplan::agent
