// One rank of a job: does what its coordinator commands (moeplan.v1.RankCommand).
//
// Holds the rank's device, mesh and ready graphs. After an error of the network the session is spent: further commands
// answer the same error, until a Start begins it anew, with a mesh, groups and graphs to be made again. One thread.
#pragma once

#include <memory>
#include <string>

#include "moeplan/v1/rank_control.pb.h"

namespace moeplan {

class RankSession {
 public:
  // `host_address`: an address of this machine that the other ranks can reach.
  static std::unique_ptr<RankSession> Make(const std::string& host_address);
  virtual ~RankSession() = default;

  virtual v1::RankReply Handle(const v1::RankCommand& command) = 0;
};

// Reads commands and writes replies until the coordinator closes its stream; then returns.
void ServeRank(RankSession& session, int read_fd, int write_fd);

}  // namespace moeplan
