// An agent without processes: its one rank answers by itself, in the times that it is told. Over a real connection.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/text.h"
#include "planner/client/agent_connection.h"

namespace moeplan {

// What one rank was asked to measure and answered.
struct LightMeasure {
  double bytes = 0;
  std::vector<double> times_s;

  friend bool operator==(const LightMeasure&, const LightMeasure&) = default;
};

class LightAgent {
 public:
  // The times of a measurement of so many bytes.
  using Times = std::function<std::vector<double>(double bytes, int repeats)>;

  LightAgent(std::string planner, int node, int nodes, Times times)
      : planner_(std::move(planner)), times_(std::move(times)) {
    registration_.set_name(StrCat("light-", node));
    registration_.set_version(MOEPLAN_VERSION);
    registration_.set_instance(StrCat("i", node));
    registration_.set_cluster("many");
    registration_.set_nodes(nodes);
    registration_.set_node(node);
    registration_.set_held_nodes(1);
    registration_.set_ranks_per_node(1);
    registration_.set_backend("light");
  }
  ~LightAgent() { Disconnect(); }

  Status Connect() {
    const std::scoped_lock lock(connecting_);
    ended_.reset();
    auto connection = client::ConnectAgentWith({.address = planner_})(
        registration_, {.received = [this](v1::AttachResponse message) { Answer(message); },
                        .ended =
                            [this](const Status& why) {
                              const std::scoped_lock log(log_);
                              ended_ = why;
                            }});
    if (!connection.ok()) return connection.status();
    connection_ = *std::move(connection);
    return OkStatus();
  }
  void Disconnect() {
    // A callback may be about to send: it must not find a lock that waits for its end.
    std::unique_ptr<AgentConnection> last;
    {
      const std::scoped_lock lock(connecting_);
      last = std::move(connection_);
    }
  }

  // From the first of its next commands on that it does not answer; absent: it answers all.
  void FallSilentAfter(std::optional<int> answers) {
    const std::scoped_lock lock(log_);
    left_ = answers;
    silent_ = false;
  }
  // Whether a command came that it did not answer: by then the planner has all that it answered before.
  bool silent() const {
    const std::scoped_lock lock(log_);
    return silent_;
  }
  // All that it has answered, in order.
  std::vector<LightMeasure> measured() const {
    const std::scoped_lock lock(log_);
    return measured_;
  }
  std::optional<Status> ended() const {
    const std::scoped_lock lock(log_);
    return ended_;
  }

 private:
  void Send(v1::AttachRequest message) {
    const std::scoped_lock lock(connecting_);
    if (connection_) (void)connection_->Send(std::move(message));
  }

  void Answer(const v1::AttachResponse& message) {
    if (message.has_heartbeat()) {
      v1::AttachRequest beat;
      beat.mutable_heartbeat()->set_wall_s(1);
      beat.mutable_heartbeat()->set_steady_s(1);
      return Send(std::move(beat));
    }
    if (!message.has_order()) return;
    v1::AttachRequest answer;
    answer.mutable_answer()->set_session(message.order().session());
    answer.mutable_answer()->set_rank(registration_.node());
    if (Do(message.order().commands(0), *answer.mutable_answer()->mutable_reply())) Send(std::move(answer));
  }

  bool Do(const v1::RankCommand& command, v1::RankReply& reply) {
    if (command.has_start()) reply.mutable_started()->set_address("nowhere");
    if (command.has_connect()) reply.mutable_connected();
    if (!command.has_measure()) return true;
    const std::scoped_lock lock(log_);
    if (left_ && *left_ == 0) {
      silent_ = true;
      return false;
    }
    if (left_) --*left_;
    const v1::RankCommand::Measure& measure = command.measure();
    LightMeasure& done = measured_.emplace_back();
    done.bytes = measure.what().bytes();
    done.times_s = times_(done.bytes, measure.repeats());
    for (const double time_s : done.times_s) reply.mutable_measured()->add_time_s(time_s);
    return true;
  }

  const std::string planner_;
  const Times times_;
  v1::AgentRegistration registration_;
  mutable std::mutex log_;
  std::vector<LightMeasure> measured_;  // Guarded by log_, as are the next three.
  std::optional<int> left_;
  bool silent_ = false;
  std::optional<Status> ended_;
  std::mutex connecting_;
  std::unique_ptr<AgentConnection> connection_;  // Guarded by connecting_.
};

}  // namespace moeplan
