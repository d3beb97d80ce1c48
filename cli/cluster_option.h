// CLUSTER: where the ranks of a command run.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

#include "agent/fleet.h"
#include "executor/launch/launch.h"
#include "models/status.h"

namespace moeplan::cli {

// The nodes of an EMULATED.json.
StatusOr<executor::EmulatedNodes> ReadEmulatedNodes(const std::string& path);
// The hosts of an Open MPI hostfile.
StatusOr<std::vector<executor::Host>> ReadHosts(const std::string& path);

// This program as a rank of a job on this machine.
executor::RankProgram OwnRankProgram();

// One of --local, --emulated, --hostfile, --launched, --simulated.
class ClusterOption {
 public:
  void Add(CLI::App& command);
  // A fleet of running ranks; absent when this process was a launched rank other than 0 and has served to its end.
  // `values`: whether ranks of a simulated cluster compute values, which takes long; all others do.
  StatusOr<std::optional<agent::Fleet>> Start(bool values = false) const;
  const std::string& backend() const { return backend_; }
  bool given() const;
  bool simulated() const { return !simulated_file_.empty(); }
  // What a profile of this cluster is called when nobody says.
  std::string DefaultName(const agent::Fleet& fleet) const;

 private:
  Status CheckOne() const;

  CLI::Option* local_option_ = nullptr;
  int local_ranks_ = 0;
  std::string emulated_file_, hostfile_, simulated_file_;
  bool launched_ = false;
  std::string deadline_ = "30s";
  CLI::Option* backend_option_ = nullptr;
  std::string backend_ = "host";
};

}  // namespace moeplan::cli
