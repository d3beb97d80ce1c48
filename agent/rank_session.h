// One rank of a job: does what its coordinator commands (moeplan.v1.RankCommand).
//
// Holds the rank, whatever its backend, and its ready graphs. After an error of the network the session is spent:
// further commands answer the same error, until a Start begins it anew, with a mesh, groups and graphs to be made
// again. One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "executor/rank_backend.h"
#include "moeplan/v1/rank_control.pb.h"

namespace moeplan::agent {

// By name; an error says what to do.
using BackendFinder = std::function<StatusOr<const executor::RankBackend*>(const std::string& name)>;

class RankSession {
 public:
  // `host_address`: an address of this machine that the other ranks can reach.
  static std::unique_ptr<RankSession> Make(const std::string& host_address, BackendFinder find_backend);
  virtual ~RankSession() = default;

  virtual v1::RankReply Handle(const v1::RankCommand& command) = 0;
};

// The frame that answers one.
std::string AnswerFrame(RankSession& session, const std::string& command);

// Reads commands and writes replies until the coordinator closes its stream; then returns.
void ServeRank(RankSession& session, int read_fd, int write_fd);

}  // namespace moeplan::agent
