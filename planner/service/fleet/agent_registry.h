// Which agents there are: who holds which node of which cluster, who was heard of when, whose clock jumped.
//
// A node has one live agent at most. An agent that connects again (the same instance, from the same caller) takes its
// own place, one that was restarted the place of its dead predecessor; beside a live one it is refused, and both are
// named. An instance is a secret between an agent and this planner: nothing here says it to anybody. Agents of a
// cluster agree on its shape and backend. Lost agents stay listed until their node is taken or room is needed.
//
// Pure: moments come in, nothing is locked. Liveness rests on the moments alone, never on anybody's wall clock.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/status.h"
#include "moeplan/v1/agent_service.pb.h"

namespace moeplan::service {

// A connection of an agent, counted from 1 on.
using AgentNumber = int;

struct RegistryOptions {
  std::string version = MOEPLAN_VERSION;  // What agents must be of.
  double lost_after_s = 15;               // Silence after which a live agent is taken for dead.
  double clock_jump_s = 2;                // How far a wall clock leaves a steady one before it counts as a jump.
  int most_agents = 4096;
};

class AgentRegistry {
 public:
  using Moment = std::chrono::steady_clock::time_point;

  struct Agent {
    AgentNumber number = 0;
    v1::AgentRegistration registration;
    std::string caller;  // Who registered it (access/caller.h).
    bool live = true;
    Moment heard;
    std::optional<double> wall_ahead_s;  // Of its steady clock, by the last heartbeat.
    int clock_jumps = 0;
    double last_clock_jump_s = 0;
    std::string lost_because;
  };

  // An agent that is registered now, and the live connection whose place it takes, 0: none.
  struct Registered {
    AgentNumber agent = 0;
    AgentNumber replaced = 0;
  };

  explicit AgentRegistry(RegistryOptions options) : options_(std::move(options)) {}

  // Whether Register would take the agent. kInvalidInput names the field; kInfeasible: another version. kUnavailable,
  // as it may pass: another live agent, another shape of the cluster, too many agents.
  Status MayRegister(const v1::AgentRegistration& registration, const std::string& caller) const;
  // The same errors.
  StatusOr<Registered> Register(const v1::AgentRegistration& registration, const std::string& caller, Moment now);

  // That something came from it. Unknown and lost agents are ignored, here and below.
  void Heard(AgentNumber agent, Moment now);
  // By how many seconds its wall clock jumped since the heartbeat before; absent: it did not.
  std::optional<double> Heartbeat(AgentNumber agent, const v1::Heartbeat& heartbeat);
  void Lose(AgentNumber agent, std::string because);

  // Live agents that have been silent for too long.
  std::vector<AgentNumber> Silent(Moment now) const;
  // Null for an unknown one.
  const Agent* Find(AgentNumber agent) const;
  // The live agents of a cluster, by node.
  std::vector<const Agent*> LiveOf(const std::string& cluster) const;
  // What keeps the cluster from being whole, as a sentence ("cluster c: nodes 1, 3 have no agent"); empty: nothing.
  std::string Missing(const std::string& cluster) const;
  // Whether one of that name is listed.
  bool Knows(const std::string& name) const;
  int live() const;
  int listed() const { return static_cast<int>(agents_.size()); }

  // By cluster and node. kInvalidInput: the page is wrong.
  StatusOr<v1::ListAgentsResponse> List(const v1::ListAgentsRequest& request, Moment now) const;

 private:
  struct Place {
    std::string cluster;
    int node = 0;

    friend auto operator<=>(const Place&, const Place&) = default;
  };

  // Whether it has the shape of the live agents of its cluster but `leaving` (may be null).
  Status CheckShape(const v1::AgentRegistration& registration, const Agent* leaving) const;
  // The live agents that hold one of its nodes.
  std::vector<const Agent*> Rivals(const v1::AgentRegistration& registration) const;
  void DropLost(const v1::AgentRegistration& registration);
  void MakeRoom();  // For one more; requires that fewer than most_agents are live.
  Agent* Live(AgentNumber agent);

  const RegistryOptions options_;
  AgentNumber last_number_ = 0;
  std::map<Place, Agent> agents_;         // By the first node that they hold.
  std::map<AgentNumber, Place> numbers_;  // Of all that are listed.
};

// Checks texts, numbers and their limits, but for the version. kInvalidInput names the field.
Status ValidateRegistration(const v1::AgentRegistration& registration);

// 1 to 64 letters, digits, dots, dashes and underscores.
bool IsFleetName(const std::string& text);

}  // namespace moeplan::service
