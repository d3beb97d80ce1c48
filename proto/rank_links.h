// Over RankLinks commands reach the ranks of a job, and answers come back.
//
// Ranks are numbered node by node. Each answers its commands in their order. A rank is lost when its process ends or
// its connection does; what it answered before can still be received. The ranks end with the object. One thread.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/status.h"
#include "moeplan/v1/rank_control.pb.h"

namespace moeplan {

class RankLinks {
 public:
  using Moment = std::chrono::steady_clock::time_point;

  virtual ~RankLinks() = default;

  virtual int nodes() const = 0;
  virtual int ranks_per_node() const = 0;
  int ranks() const { return nodes() * ranks_per_node(); }

  // Says which ranks a command did not reach.
  struct Unsent {
    int rank = 0;  // The first that it did not reach.
    Status why;
    int reached = 0;  // Ranks 0 to reached - 1 have theirs, and owe an answer; no other does.
  };
  // Sends each rank its command, or all of them the only one, without waiting for answers.
  virtual std::optional<Unsent> Send(std::span<const v1::RankCommand> commands) = 0;

  // Waits until an answer or the end of one of the `wanted` ranks has begun to come in, and returns the ranks of which
  // that is so; none when there is none at `until`.
  virtual std::vector<int> Await(const std::vector<bool>& wanted, Moment until) = 0;

  // Returns the answer that Await told of. kPeerLost: the rank has ended instead. After an error nothing that comes
  // from it can be understood.
  virtual StatusOr<v1::RankReply> Receive(int rank) = 0;

  // Says how the rank ended, such as "killed by signal 9"; empty while it runs.
  virtual std::string EndOf(int rank) = 0;
  // Its process on this machine; 0: it is on another.
  virtual int ProcessOf(int rank) const = 0;
};

}  // namespace moeplan
