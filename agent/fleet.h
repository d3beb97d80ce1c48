// The coordinator's view of a job's ranks, wherever they are: one command to all of them, one answer from each.
//
// The first thing that goes wrong ends the job: a rank that reports an error, closes its stream, or does not answer in
// time. The error names the rank and, where a rank process ended, how. Where all processes still live, Restart begins
// again on them. Driven by one thread.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/rank_links.h"
#include "executor/launch/launch.h"
#include "models/cost/samples.h"
#include "models/workload/workload.h"
#include "moeplan/v1/rank_control.pb.h"

namespace moeplan::agent {

struct FleetOptions {
  double collective_deadline_s = 30;  // Of one collective on a rank.
  double start_timeout_s = 60;
  std::string backend = "host";  // What the ranks run on.
  Provenance provenance;         // What the caller knows of the launch.
  // The most that one rank can send one way over its network, where the caller knows it and ranks do not; 0: unknown.
  double network_bytes_per_s = 0;
};

class Fleet {
 public:
  // Takes over the launched ranks and connects them.
  static StatusOr<Fleet> Start(std::unique_ptr<executor::Launch> launch, const FleetOptions& options = {});
  static StatusOr<Fleet> Start(std::unique_ptr<RankLinks> ranks, const FleetOptions& options = {});

  // Connects the ranks anew, whatever state a failed call left them in; graphs must be prepared again. Waits
  // `start_timeout_s` for ranks that still owe an answer, such as one that was stopped and goes on. kPeerLost, naming
  // the rank, when one has ended or its stream is broken: then only a new launch helps.
  Status Restart();

  // The same command on every rank; the answers in rank order. `what` is for errors: what the ranks are asked to do.
  StatusOr<std::vector<v1::RankReply>> Call(const v1::RankCommand& command, std::string_view what, double timeout_s);

  // The same for what begins with a barrier: once the first rank has answered, the others get `collective_deadline_s`.
  StatusOr<std::vector<v1::RankReply>> CallInStep(const v1::RankCommand& command, std::string_view what,
                                                  double timeout_s);

  // Nodes, ranks, the memory of the smallest device and the rates of the fastest links, where these are known.
  const Cluster& cluster() const { return cluster_; }
  int ranks() const { return ranks_->ranks(); }
  // Whether it runs plans with communication_ctas.
  bool limits_ctas() const { return limits_ctas_; }
  // Whether the same work takes the same time, always: then one run tells as much as many.
  bool repeats_times() const { return repeats_times_; }
  // For samples: FleetOptions::provenance, facts about rank 0's machine and build, and, where the ranks are on several
  // machines, "hosts": the name of each, in the order of ranks.
  const Provenance& provenance() const { return provenance_; }
  double collective_deadline_s() const { return options_.collective_deadline_s; }
  int ProcessOf(int rank) const { return ranks_->ProcessOf(rank); }

 private:
  Fleet(std::unique_ptr<RankLinks> ranks, const FleetOptions& options)
      : ranks_(std::move(ranks)),
        options_(options),
        streams_(ranks_->ranks()),
        cluster_({.nodes = ranks_->nodes(), .gpus_per_node = ranks_->ranks_per_node()}) {}

  // Takes over what the ranks said of their devices and links, and what the options say of the network.
  void LearnCluster(std::span<const v1::RankReply> started);

  // Start and Connect on every rank; what they answered to Start.
  StatusOr<std::vector<v1::RankReply>> Connect();

  // How long the ranks may take, and, once one has answered, how much longer the others.
  struct Patience {
    double first_s = 0, others_s = 0;
  };
  // A command for each rank, or one for all.
  StatusOr<std::vector<v1::RankReply>> CallEach(std::span<const v1::RankCommand> commands, std::string_view what,
                                                Patience patience);
  std::optional<RankLinks::Unsent> Send(std::span<const v1::RankCommand> commands);
  // The answer to the oldest command that has none; it must have begun to come in.
  StatusOr<v1::RankReply> Receive(int rank);
  // What a failed call left unread.
  Status DropAnswers(int rank, std::chrono::steady_clock::time_point deadline);

  // What really happened, when `rank` was the first to fail: a rank that died, or stays silent, explains its peers'
  // complaints.
  Status RootCause(int rank, const Status& first, std::vector<bool> answered);

  struct StreamState {
    int unanswered = 0;  // Commands.
    Status broken;       // Its end, or an answer that broke off: nothing that comes after can be understood.
  };

  std::unique_ptr<RankLinks> ranks_;
  FleetOptions options_;
  std::vector<StreamState> streams_;  // By rank.
  Cluster cluster_;
  Provenance provenance_;
  bool limits_ctas_ = false;
  bool repeats_times_ = false;
};

}  // namespace moeplan::agent
