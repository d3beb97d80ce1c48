// The planner's end of all agents: who is there (agent_registry.h), heartbeats both ways, and the sessions in which the
// ranks of a cluster work for a calibration.
//
// A cluster has one session at a time. Agents that come and go end it or make it possible; nobody is started or stopped
// here for any other reason. Nothing here waits for an agent, but for AwaitChange, which is told until when.
//
// Threads: any. The log is called without a lock held.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "models/cost/samples.h"
#include "models/status.h"
#include "moeplan/v1/agent_service.pb.h"
#include "planner/service/fleet/agent_registry.h"
#include "planner/service/fleet/mailbox.h"
#include "planner/service/fleet/relayed_ranks.h"

namespace moeplan::service {

// Where messages to one agent go. Neither call blocks; both may be called from any thread, also after the end.
class AgentOutlet {
 public:
  virtual ~AgentOutlet() = default;

  virtual void Send(v1::AttachResponse message) = 0;
  virtual void End(const Status& why) = 0;
};

struct HubOptions {
  RegistryOptions registry;
  double heartbeat_s = 5;
  std::function<void(std::string_view line)> log = [](std::string_view) {};
  std::function<AgentRegistry::Moment()> now = std::chrono::steady_clock::now;
  // Whether the name of an agent may be taken for whoever attaches it, and takes it once nothing else speaks against
  // the agent (agent_names.h). Called without a lock held; taking may wait for the disk.
  using OfName = std::function<Status(const std::string& name, const std::string& caller)>;
  OfName may_claim = [](const std::string&, const std::string&) { return OkStatus(); };
  OfName claim = [](const std::string&, const std::string&) { return OkStatus(); };
};

class AgentHub {
 public:
  explicit AgentHub(HubOptions options);
  ~AgentHub();
  AgentHub(const AgentHub&) = delete;

  // From connections.

  // Registers the agent of a caller (access/caller.h) and welcomes it. Errors of HubOptions::claim and of
  // AgentRegistry::Register; kUnavailable during a shutdown.
  StatusOr<AgentNumber> Attach(const v1::AgentRegistration& registration, const std::string& caller,
                               std::shared_ptr<AgentOutlet> outlet);
  // An error ends the connection.
  Status Receive(AgentNumber agent, v1::AttachRequest message);
  // The connection has ended.
  void Detach(AgentNumber agent, const Status& why);

  // For handlers.

  StatusOr<v1::ListAgentsResponse> List(const v1::ListAgentsRequest& request) const;
  // Whether a live agent of the cluster has that name.
  bool Holds(const std::string& cluster, const std::string& name) const;
  // Whether an agent of that name is, or was, of a cluster here.
  bool Knows(const std::string& name) const;
  struct Counts {
    int attached = 0, missing = 0;  // Missing: those that are listed and not attached.
  };
  Counts counts() const;

  // For calibrations.

  // What keeps the cluster from being whole; empty: nothing.
  std::string Missing(const std::string& cluster) const;
  // A number that differs after agents have come or gone.
  int changes() const;
  // Returns once changes() is not `seen`, at `until`, or when asked to stop.
  void AwaitChange(int seen, AgentRegistry::Moment until, std::stop_token stop) const;
  // Starts the ranks of a whole cluster. kUnavailable: it is not whole, or has a session.
  StatusOr<RelayedRanks> StartRanks(const std::string& cluster);
  // Makes every rank of the cluster's session count as lost, so that who waits for them returns.
  void Interrupt(const std::string& cluster, const std::string& why);

  // Sends heartbeats and gives up silent agents; called every heartbeat_s.
  void Tick();
  // Ends all connections and takes no more.
  void Shutdown();

 private:
  class Ranks;

  struct Connection {
    std::shared_ptr<AgentOutlet> outlet;  // Shared with the transport, which may end first.
    int session = 0;                      // 0: none.
  };
  struct Session {
    std::string cluster;
    std::shared_ptr<Mailbox> mailbox;  // Shared with the Ranks.
  };

  // The following require the lock.
  void LoseRanks(const AgentRegistry::Agent& agent, Connection& connection, const std::string& how);
  void Lost(AgentNumber agent, const std::string& because, std::vector<std::string>& lines);
  Status Answered(const AgentRegistry::Agent& agent, v1::AttachRequest::Answer answer);
  Status RanksLost(const AgentRegistry::Agent& agent, const v1::AttachRequest::RanksLost& lost);
  void Changed();

  void EndSession(int session);
  void Log(const std::vector<std::string>& lines) const;

  const HubOptions options_;
  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  AgentRegistry registry_;                         // Guarded by mutex_, as is all below.
  std::map<AgentNumber, Connection> connections_;  // Of live agents.
  std::map<int, Session> sessions_;
  int last_session_ = 0;
  int changes_ = 0;
  bool ending_ = false;
};

// What the clocks of this machine say.
v1::Heartbeat HeartbeatNow();

// `told`, of a sample or by a rank, with what the hub alone states of a launch (its kind, the cluster, the network
// card) as it states it: whoever runs ranks may tell anything.
Provenance WithFactsOfHub(Provenance told, const Provenance& of_hub);

}  // namespace moeplan::service
