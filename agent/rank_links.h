// How a Fleet reaches its ranks: a command goes out to each, and answers come back, of each rank in the order of its
// commands. For one thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/launch/launch.h"
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

  // A command for each rank, or one for all. What failed first, if anything did: ranks above have got nothing.
  struct Unsent {
    int rank = 0;
    Status why;
  };
  virtual std::optional<Unsent> Send(std::span<const v1::RankCommand> commands) = 0;

  // Of the `wanted` ranks, those whose answer, or end, has begun to come in, as soon as there is one; none when there
  // is none until then.
  virtual std::vector<int> Await(const std::vector<bool>& wanted, Moment until) = 0;

  // The answer that has begun to come in. kPeerLost: the stream has ended instead. After an error nothing that comes
  // can be understood.
  virtual StatusOr<v1::RankReply> Receive(int rank) = 0;

  // As of Launch.
  virtual std::string EndOf(int rank) = 0;
  virtual int ProcessOf(int rank) const = 0;
};

// Frames over the byte streams of a launch.
std::unique_ptr<RankLinks> LinksOf(std::unique_ptr<Launch> launch);

}  // namespace moeplan
