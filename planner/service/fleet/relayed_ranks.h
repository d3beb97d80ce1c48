// The ranks of a cluster, started anew behind its agents: commands go out, answers come back.
//
// Ranks are numbered node by node. Answers of a rank come in the order of its commands. A rank is lost when its process
// ends, with its agent, or when the session is closed; what it answered before can still be taken. The ranks end with
// the object, which must go before the planner's end of the agents does.
//
// Threads: any; Await is for one at a time.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/status.h"
#include "moeplan/v1/rank_control.pb.h"

namespace moeplan {

class RelayedRanks {
 public:
  using Moment = std::chrono::steady_clock::time_point;

  virtual ~RelayedRanks() = default;

  virtual int nodes() const = 0;
  virtual int ranks_per_node() const = 0;
  virtual const std::string& backend() const = 0;
  // What agents said of their machines, for samples.
  virtual const std::map<std::string, std::string>& provenance() const = 0;
  // What agents asked for; 0: nothing.
  virtual double collective_deadline_s() const = 0;

  // Sends each rank its command, or all of them the only one, without waiting. The rank that is lost, where one is:
  // then nothing was sent.
  virtual std::optional<int> Send(std::span<const v1::RankCommand> commands) = 0;
  // Of the `wanted` ranks, those with an answer to take and those that are lost, as soon as there is one; none when
  // there is none until then.
  virtual std::vector<int> Await(const std::vector<bool>& wanted, Moment until) = 0;
  // kUnavailable: there is none yet; kPeerLost: none will come.
  virtual StatusOr<v1::RankReply> Take(int rank) = 0;
  // How the rank ended, such as "killed by signal 9"; empty while it runs.
  virtual std::string EndOf(int rank) = 0;
};

}  // namespace moeplan
