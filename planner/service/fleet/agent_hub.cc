#include "planner/service/fleet/agent_hub.h"

#include <algorithm>
#include <utility>

#include "models/cost/plausible.h"
#include "models/text.h"
#include "planner/service/fleet/errors.h"

namespace moeplan::service {
namespace {

constexpr char kLaunchKey[] = "launch", kFleetKey[] = "fleet", kNicKey[] = "nicBytesPerS";

std::string Described(const v1::AgentRegistration& agent) {
  return StrCat("agent ", agent.name(), " (cluster ", agent.cluster(), ", node ", agent.node(), ")");
}

int FirstRank(const v1::AgentRegistration& agent) { return agent.node() * agent.ranks_per_node(); }
int RanksOf(const v1::AgentRegistration& agent) { return agent.held_nodes() * agent.ranks_per_node(); }

// What the agents of a cluster say of it together.
Provenance ProvenanceOf(const std::vector<const AgentRegistry::Agent*>& agents) {
  const v1::AgentRegistration& first = agents.front()->registration;
  Provenance of_hub = {{kLaunchKey, "agents"}, {kFleetKey, first.cluster()}};
  double nic_bytes_per_s = first.nic_bytes_per_s();
  for (const AgentRegistry::Agent* agent : agents) {
    nic_bytes_per_s = std::min(nic_bytes_per_s, agent->registration.nic_bytes_per_s());
  }
  if (nic_bytes_per_s > 0) of_hub[kNicKey] = StrCat(nic_bytes_per_s);
  Provenance facts(first.hardware().begin(), first.hardware().end());
  for (const char* const read : {kAgentKey, kLinkBytesPerSKey}) facts.erase(read);  // By moeplan, of samples.
  return WithFactsOfHub(std::move(facts), of_hub);
}

}  // namespace

Provenance WithFactsOfHub(Provenance told, const Provenance& of_hub) {
  for (const char* const name : {kLaunchKey, kFleetKey, kNicKey}) {
    told.erase(name);
    if (const auto fact = of_hub.find(name); fact != of_hub.end()) told.insert(*fact);
  }
  return told;
}

v1::Heartbeat HeartbeatNow() {
  const auto seconds = [](auto moment) { return std::chrono::duration<double>(moment.time_since_epoch()).count(); };
  v1::Heartbeat heartbeat;
  heartbeat.set_wall_s(seconds(std::chrono::system_clock::now()));
  heartbeat.set_steady_s(seconds(std::chrono::steady_clock::now()));
  return heartbeat;
}

// A session as its user holds it.
class AgentHub::Ranks final : public RankLinks {
 public:
  struct Member {
    v1::AgentRegistration registration;
    std::shared_ptr<AgentOutlet> outlet;  // Shared with the hub.
  };

  Ranks(AgentHub& hub, int session, std::shared_ptr<Mailbox> mailbox, std::vector<Member> members)
      : hub_(hub), session_(session), mailbox_(std::move(mailbox)), members_(std::move(members)) {}
  ~Ranks() override { hub_.EndSession(session_); }

  int nodes() const override { return first().nodes(); }
  int ranks_per_node() const override { return first().ranks_per_node(); }

  std::optional<Unsent> Send(std::span<const v1::RankCommand> commands) override {
    if (const int lost = mailbox_->FirstLost(); lost >= 0) {
      return Unsent{.rank = lost, .why = PeerLost(StrCat("its process was ", mailbox_->EndOf(lost)))};
    }
    for (const Member& member : members_) member.outlet->Send(OrderFor(member.registration, commands));
    return std::nullopt;
  }

  std::vector<int> Await(const std::vector<bool>& wanted, Moment until) override {
    return mailbox_->Await(wanted, until);
  }
  StatusOr<v1::RankReply> Receive(int rank) override { return mailbox_->Take(rank); }
  std::string EndOf(int rank) override { return mailbox_->EndOf(rank); }
  int ProcessOf(int /*rank*/) const override { return 0; }

 private:
  const v1::AgentRegistration& first() const { return members_.front().registration; }

  v1::AttachResponse OrderFor(const v1::AgentRegistration& agent, std::span<const v1::RankCommand> commands) const {
    v1::AttachResponse message;
    v1::AttachResponse::Order& order = *message.mutable_order();
    order.set_session(session_);
    const std::span<const v1::RankCommand> own =
        commands.size() == 1 ? commands : commands.subspan(FirstRank(agent), RanksOf(agent));
    for (const v1::RankCommand& command : own) *order.add_commands() = command;
    return message;
  }

  AgentHub& hub_;
  const int session_;
  const std::shared_ptr<Mailbox> mailbox_;
  const std::vector<Member> members_;
};

AgentHub::AgentHub(HubOptions options) : options_(std::move(options)), registry_(options_.registry) {}
AgentHub::~AgentHub() { Shutdown(); }

void AgentHub::Log(const std::vector<std::string>& lines) const {
  for (const std::string& line : lines) options_.log(line);
}

void AgentHub::Changed() {
  ++changes_;
  changed_.notify_all();
}

StatusOr<AgentNumber> AgentHub::Attach(const v1::AgentRegistration& registration, const std::string& caller,
                                       std::shared_ptr<AgentOutlet> outlet) {
  RETURN_IF_ERROR(ValidateRegistration(registration));
  // Another's name is refused for good, a place that is held may become free.
  RETURN_IF_ERROR(options_.may_claim(registration.name(), caller));
  {
    const std::scoped_lock lock(mutex_);
    if (ending_) return error::ShuttingDown();
    RETURN_IF_ERROR(registry_.MayRegister(registration, caller));
  }
  RETURN_IF_ERROR(options_.claim(registration.name(), caller));
  v1::AttachResponse welcome;
  welcome.mutable_welcome()->set_heartbeat_s(options_.heartbeat_s);
  welcome.mutable_welcome()->set_lost_after_s(options_.registry.lost_after_s);
  std::shared_ptr<AgentOutlet> replaced;
  AgentRegistry::Registered registered;
  {
    const std::scoped_lock lock(mutex_);
    if (ending_) return error::ShuttingDown();
    ASSIGN_OR_RETURN(registered, registry_.Register(registration, caller, options_.now()));
    if (const auto before = connections_.find(registered.replaced); before != connections_.end()) {
      replaced = before->second.outlet;
      // The registry knows the old one no more, but its ranks are those of the same places.
      LoseRanks(*registry_.Find(registered.agent), before->second, error::TakenOver().message());
      connections_.erase(before);
    }
    outlet->Send(std::move(welcome));
    connections_[registered.agent] = {.outlet = std::move(outlet)};
    Changed();
  }
  if (replaced) replaced->End(error::TakenOver());
  Log({StrCat(Described(registration), " has connected")});
  return registered.agent;
}

Status AgentHub::Receive(AgentNumber agent, v1::AttachRequest message) {
  std::vector<std::string> lines;
  Status status;
  {
    const std::scoped_lock lock(mutex_);
    const AgentRegistry::Agent* const known = registry_.Find(agent);
    if (known == nullptr || !known->live) return OkStatus();
    registry_.Heard(agent, options_.now());
    switch (message.what_case()) {
      case v1::AttachRequest::kHeartbeat:
        if (const auto jump_s = registry_.Heartbeat(agent, message.heartbeat())) {
          lines.push_back(StrCat(Described(known->registration), ": its wall clock jumped by ", *jump_s,
                                 " s; nothing here depends on it"));
        }
        break;
      case v1::AttachRequest::kAnswer: status = Answered(*known, std::move(*message.mutable_answer())); break;
      case v1::AttachRequest::kRanksLost: status = RanksLost(*known, message.ranks_lost()); break;
      case v1::AttachRequest::kRegistration: status = error::RegisteredTwice(); break;
      case v1::AttachRequest::WHAT_NOT_SET: break;  // A newer agent's; it lives.
    }
  }
  Log(lines);
  return status;
}

Status AgentHub::Answered(const AgentRegistry::Agent& agent, v1::AttachRequest::Answer answer) {
  if (connections_.at(agent.number).session != answer.session()) return OkStatus();  // Of an earlier one.
  const auto session = sessions_.find(answer.session());
  if (session == sessions_.end()) return OkStatus();
  const int first = FirstRank(agent.registration), last = first + RanksOf(agent.registration) - 1;
  if (answer.rank() < first || answer.rank() > last)
    return error::OutOfRange("answer.rank", answer.rank(), first, last);
  if (session->second.mailbox->Deliver(answer.rank(), std::move(*answer.mutable_reply()))) return OkStatus();
  return InvalidInput(StrCat("answer: found more of rank ", answer.rank(), " than it was asked for"));
}

Status AgentHub::RanksLost(const AgentRegistry::Agent& agent, const v1::AttachRequest::RanksLost& lost) {
  if (connections_.at(agent.number).session != lost.session()) return OkStatus();
  const auto session = sessions_.find(lost.session());
  if (session == sessions_.end()) return OkStatus();
  const int first = FirstRank(agent.registration), count = RanksOf(agent.registration);
  const std::string how = StrCat(lost.how().substr(0, 1000), " at ", Described(agent.registration));
  if (lost.rank() == -1) {
    session->second.mailbox->Lose(first, count, how);
    return OkStatus();
  }
  if (lost.rank() < first || lost.rank() >= first + count) {
    return error::OutOfRange("ranksLost.rank", lost.rank(), first, first + count - 1);
  }
  session->second.mailbox->Lose(lost.rank(), 1, how);
  return OkStatus();
}

void AgentHub::LoseRanks(const AgentRegistry::Agent& agent, Connection& connection, const std::string& how) {
  const auto session = sessions_.find(connection.session);
  if (session == sessions_.end()) return;
  session->second.mailbox->Lose(FirstRank(agent.registration), RanksOf(agent.registration),
                                StrCat("lost with ", Described(agent.registration), ": ", how));
}

void AgentHub::Lost(AgentNumber agent, const std::string& because, std::vector<std::string>& lines) {
  const auto connection = connections_.find(agent);
  const AgentRegistry::Agent* const known = registry_.Find(agent);
  if (connection == connections_.end() || known == nullptr) return;
  LoseRanks(*known, connection->second, because);
  lines.push_back(StrCat(Described(known->registration), " is lost: ", because));
  registry_.Lose(agent, because);
  connections_.erase(connection);
  Changed();
}

void AgentHub::Detach(AgentNumber agent, const Status& why) {
  std::vector<std::string> lines;
  {
    const std::scoped_lock lock(mutex_);
    Lost(agent, why.ok() ? "it has disconnected" : why.message(), lines);
  }
  Log(lines);
}

bool AgentHub::Holds(const std::string& cluster, const std::string& name) const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::any_of(registry_.LiveOf(cluster),
                             [&](const AgentRegistry::Agent* agent) { return agent->registration.name() == name; });
}

bool AgentHub::Knows(const std::string& name) const {
  const std::scoped_lock lock(mutex_);
  return registry_.Knows(name);
}

AgentHub::Counts AgentHub::counts() const {
  const std::scoped_lock lock(mutex_);
  return {.attached = registry_.live(), .missing = registry_.listed() - registry_.live()};
}

StatusOr<v1::ListAgentsResponse> AgentHub::List(const v1::ListAgentsRequest& request) const {
  const std::scoped_lock lock(mutex_);
  return registry_.List(request, options_.now());
}

std::string AgentHub::Missing(const std::string& cluster) const {
  const std::scoped_lock lock(mutex_);
  return registry_.Missing(cluster);
}

int AgentHub::changes() const {
  const std::scoped_lock lock(mutex_);
  return changes_;
}

void AgentHub::AwaitChange(int seen, AgentRegistry::Moment until, std::stop_token stop) const {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, std::move(stop), until, [&] { return changes_ != seen; });
}

StatusOr<RelayedRanks> AgentHub::StartRanks(const std::string& cluster) {
  RelayedRanks started;
  std::vector<Ranks::Member> members;
  std::shared_ptr<Mailbox> mailbox;
  int session = 0;
  {
    const std::scoped_lock lock(mutex_);
    if (const std::string missing = registry_.Missing(cluster); !missing.empty()) return Unavailable(missing);
    for (const auto& [number, other] : sessions_) {
      if (other.cluster == cluster) return error::ClusterIsBusy(cluster);
    }
    const std::vector<const AgentRegistry::Agent*> agents = registry_.LiveOf(cluster);
    started.backend = agents.front()->registration.backend();
    started.provenance = ProvenanceOf(agents);
    session = ++last_session_;
    const v1::AgentRegistration& first = agents.front()->registration;
    mailbox = std::make_shared<Mailbox>(first.nodes() * first.ranks_per_node());
    sessions_[session] = {.cluster = cluster, .mailbox = mailbox};
    for (const AgentRegistry::Agent* agent : agents) {
      Connection& connection = connections_.at(agent->number);
      connection.session = session;
      members.push_back({.registration = agent->registration, .outlet = connection.outlet});
      started.collective_deadline_s =
          std::max(started.collective_deadline_s, agent->registration.collective_deadline_s());
    }
  }
  v1::AttachResponse start;
  start.mutable_start_ranks()->set_session(session);
  for (const Ranks::Member& member : members) member.outlet->Send(start);
  started.links = std::make_unique<Ranks>(*this, session, std::move(mailbox), std::move(members));
  return started;
}

void AgentHub::Interrupt(const std::string& cluster, const std::string& why) {
  const std::scoped_lock lock(mutex_);
  for (const auto& [number, session] : sessions_) {
    if (session.cluster == cluster) session.mailbox->Lose(0, session.mailbox->ranks(), why);
  }
}

void AgentHub::EndSession(int session) {
  std::vector<std::shared_ptr<AgentOutlet>> members;
  {
    const std::scoped_lock lock(mutex_);
    sessions_.erase(session);
    for (auto& [number, connection] : connections_) {
      if (connection.session != session) continue;
      connection.session = 0;
      members.push_back(connection.outlet);
    }
    Changed();
  }
  v1::AttachResponse stop;
  stop.mutable_stop_ranks()->set_session(session);
  for (const auto& member : members) member->Send(stop);
}

void AgentHub::Tick() {
  std::vector<std::string> lines;
  std::vector<std::shared_ptr<AgentOutlet>> silent, live;
  {
    const std::scoped_lock lock(mutex_);
    for (const AgentNumber agent : registry_.Silent(options_.now())) {
      silent.push_back(connections_.at(agent).outlet);
      Lost(agent, error::SilentAgent(options_.registry.lost_after_s).message(), lines);
    }
    for (const auto& [number, connection] : connections_) live.push_back(connection.outlet);
  }
  for (const auto& outlet : silent) outlet->End(error::SilentAgent(options_.registry.lost_after_s));
  v1::AttachResponse beat;
  *beat.mutable_heartbeat() = HeartbeatNow();
  for (const auto& outlet : live) outlet->Send(beat);
  Log(lines);
}

void AgentHub::Shutdown() {
  std::vector<std::shared_ptr<AgentOutlet>> all;
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
    for (const auto& [number, connection] : connections_) all.push_back(connection.outlet);
  }
  for (const auto& outlet : all) outlet->End(error::ShuttingDown());
}

}  // namespace moeplan::service
