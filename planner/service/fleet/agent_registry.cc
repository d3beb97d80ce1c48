#include "planner/service/fleet/agent_registry.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/check.h"
#include "models/text.h"
#include "planner/service/fleet/errors.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

constexpr size_t kLongestName = 64;
constexpr int kMostNodes = 4096, kMostRanksPerNode = 1024;
constexpr int kMostHardware = 64;
constexpr size_t kLongestHardware = 256;
constexpr double kLongestDeadlineS = 86400;
constexpr int kDefaultPage = 100, kLargestPage = 1000;

Status CheckRange(std::string_view field, double found, double lowest, double highest) {
  return found >= lowest && found <= highest ? OkStatus() : error::OutOfRange(field, found, lowest, highest);
}

bool Overlap(const v1::AgentRegistration& one, const v1::AgentRegistration& other) {
  return one.cluster() == other.cluster() && one.node() < other.node() + other.held_nodes() &&
         other.node() < one.node() + one.held_nodes();
}

// A token is "NODE/CLUSTER" of the last agent on the page before.
std::string TokenOf(const v1::AgentRegistration& last) { return StrCat(last.node(), "/", last.cluster()); }

}  // namespace

bool IsFleetName(const std::string& text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  return !text.empty() && text.size() <= kLongestName && text.find_first_not_of(kAllowed) == std::string::npos;
}

Status ValidateRegistration(const v1::AgentRegistration& registration) {
  for (const auto& [field, text] :
       {std::pair("name", &registration.name()), std::pair("instance", &registration.instance()),
        std::pair("cluster", &registration.cluster()), std::pair("backend", &registration.backend())}) {
    if (!IsFleetName(*text)) return error::BadName(field, *text);
  }
  RETURN_IF_ERROR(CheckRange("nodes", registration.nodes(), 1, kMostNodes));
  RETURN_IF_ERROR(CheckRange("node", registration.node(), 0, registration.nodes() - 1));
  RETURN_IF_ERROR(CheckRange("heldNodes", registration.held_nodes(), 1, registration.nodes() - registration.node()));
  RETURN_IF_ERROR(CheckRange("ranksPerNode", registration.ranks_per_node(), 1, kMostRanksPerNode));
  RETURN_IF_ERROR(CheckRange("nicBytesPerS", registration.nic_bytes_per_s(), 0, 1e21));
  RETURN_IF_ERROR(CheckRange("collectiveDeadlineS", registration.collective_deadline_s(), 0, kLongestDeadlineS));
  if (registration.hardware_size() > kMostHardware) {
    return error::TooMuchHardware(registration.hardware_size(), kMostHardware);
  }
  for (const auto& [name, value] : registration.hardware()) {
    if (name.size() + value.size() > kLongestHardware) return error::LongHardware(name, kLongestHardware);
  }
  return OkStatus();
}

Status AgentRegistry::MayRegister(const v1::AgentRegistration& registration, const std::string& caller) const {
  RETURN_IF_ERROR(ValidateRegistration(registration));
  if (registration.version() != options_.version) return error::OtherVersion(registration, options_.version);
  const Agent* own = nullptr;
  for (const Agent* const rival : Rivals(registration)) {
    const bool same = rival->registration.instance() == registration.instance() &&
                      rival->registration.node() == registration.node() && rival->caller == caller;
    if (!same) return error::NodeIsHeld(registration, rival->registration);
    own = rival;
  }
  RETURN_IF_ERROR(CheckShape(registration, own));
  return own == nullptr && live() >= options_.most_agents ? error::TooManyAgents(options_.most_agents) : OkStatus();
}

StatusOr<AgentRegistry::Registered> AgentRegistry::Register(const v1::AgentRegistration& registration,
                                                            const std::string& caller, Moment now) {
  RETURN_IF_ERROR(MayRegister(registration, caller));
  Agent agent = {.number = last_number_ + 1, .registration = registration, .caller = caller, .heard = now};
  Registered registered = {.agent = agent.number};
  // One at most, and the agent's own: MayRegister has looked.
  for (const Agent* const rival : Rivals(registration)) {
    registered.replaced = rival->number;
    Lose(rival->number, error::TakenOver().message());
  }
  const Place place = {registration.cluster(), registration.node()};
  if (const auto before = agents_.find(place);
      before != agents_.end() && before->second.registration.instance() == registration.instance()) {
    agent.clock_jumps = before->second.clock_jumps;
    agent.last_clock_jump_s = before->second.last_clock_jump_s;
    agent.wall_ahead_s = before->second.wall_ahead_s;
  }
  DropLost(registration);
  MakeRoom();
  last_number_ = agent.number;
  numbers_[agent.number] = place;
  agents_[place] = std::move(agent);
  return registered;
}

Status AgentRegistry::CheckShape(const v1::AgentRegistration& registration, const Agent* leaving) const {
  std::vector<const Agent*> live = LiveOf(registration.cluster());
  std::erase(live, leaving);
  if (live.empty()) return OkStatus();
  const v1::AgentRegistration& earlier = live.front()->registration;
  const bool alike = earlier.nodes() == registration.nodes() &&
                     earlier.ranks_per_node() == registration.ranks_per_node() &&
                     earlier.backend() == registration.backend();
  return alike ? OkStatus() : error::OtherShape(registration, earlier);
}

std::vector<const AgentRegistry::Agent*> AgentRegistry::Rivals(const v1::AgentRegistration& registration) const {
  std::vector<const Agent*> rivals = LiveOf(registration.cluster());
  std::erase_if(rivals, [&](const Agent* agent) { return !Overlap(agent->registration, registration); });
  return rivals;
}

void AgentRegistry::DropLost(const v1::AgentRegistration& registration) {
  std::erase_if(agents_, [&](const auto& entry) {
    const bool drop = !entry.second.live && Overlap(entry.second.registration, registration);
    if (drop) numbers_.erase(entry.second.number);
    return drop;
  });
}

void AgentRegistry::MakeRoom() {
  if (static_cast<int>(agents_.size()) < options_.most_agents) return;
  auto oldest = agents_.end();
  for (auto entry = agents_.begin(); entry != agents_.end(); ++entry) {
    if (entry->second.live) continue;
    if (oldest == agents_.end() || entry->second.heard < oldest->second.heard) oldest = entry;
  }
  MOEPLAN_CHECK(oldest != agents_.end());
  numbers_.erase(oldest->second.number);
  agents_.erase(oldest);
}

const AgentRegistry::Agent* AgentRegistry::Find(AgentNumber agent) const {
  const auto place = numbers_.find(agent);
  return place == numbers_.end() ? nullptr : &agents_.at(place->second);
}

AgentRegistry::Agent* AgentRegistry::Live(AgentNumber agent) {
  const auto place = numbers_.find(agent);
  if (place == numbers_.end()) return nullptr;
  Agent& found = agents_.at(place->second);
  return found.live ? &found : nullptr;
}

void AgentRegistry::Heard(AgentNumber agent, Moment now) {
  if (Agent* const live = Live(agent)) live->heard = now;
}

std::optional<double> AgentRegistry::Heartbeat(AgentNumber agent, const v1::Heartbeat& heartbeat) {
  Agent* const live = Live(agent);
  const double wall_ahead_s = heartbeat.wall_s() - heartbeat.steady_s();
  if (live == nullptr || !std::isfinite(wall_ahead_s)) return std::nullopt;
  const double jump_s = live->wall_ahead_s ? wall_ahead_s - *live->wall_ahead_s : 0;
  live->wall_ahead_s = wall_ahead_s;
  if (std::abs(jump_s) < options_.clock_jump_s) return std::nullopt;
  ++live->clock_jumps;
  live->last_clock_jump_s = jump_s;
  return jump_s;
}

void AgentRegistry::Lose(AgentNumber agent, std::string because) {
  Agent* const live = Live(agent);
  if (live == nullptr) return;
  live->live = false;
  live->lost_because = std::move(because);
}

std::vector<AgentNumber> AgentRegistry::Silent(Moment now) const {
  std::vector<AgentNumber> silent;
  for (const auto& [place, agent] : agents_) {
    const double silent_s = std::chrono::duration<double>(now - agent.heard).count();
    if (agent.live && silent_s > options_.lost_after_s) silent.push_back(agent.number);
  }
  return silent;
}

std::vector<const AgentRegistry::Agent*> AgentRegistry::LiveOf(const std::string& cluster) const {
  std::vector<const Agent*> live;
  for (auto entry = agents_.lower_bound({cluster, 0}); entry != agents_.end() && entry->first.cluster == cluster;
       ++entry) {
    if (entry->second.live) live.push_back(&entry->second);
  }
  return live;
}

std::string AgentRegistry::Missing(const std::string& cluster) const {
  constexpr int kNamed = 8;
  const std::vector<const Agent*> live = LiveOf(cluster);
  if (live.empty()) return StrCat("cluster ", cluster, ": no node has an agent");
  std::string missing;
  int node = 0, count = 0;
  const auto miss_until = [&](int end) {
    for (; node < end; ++node) {
      if (++count <= kNamed) missing += StrCat(missing.empty() ? "" : ", ", node);
    }
  };
  for (const Agent* agent : live) {
    miss_until(agent->registration.node());
    node += agent->registration.held_nodes();
  }
  miss_until(live.front()->registration.nodes());
  if (count == 0) return "";
  if (count > kNamed) missing += StrCat(" and ", count - kNamed, " more");
  return StrCat("cluster ", cluster, ": ", count == 1 ? "node " : "nodes ", missing, count == 1 ? " has" : " have",
                " no agent");
}

bool AgentRegistry::Knows(const std::string& name) const {
  return std::ranges::any_of(agents_, [&](const auto& entry) { return entry.second.registration.name() == name; });
}

int AgentRegistry::live() const {
  return static_cast<int>(std::ranges::count_if(agents_, [](const auto& entry) { return entry.second.live; }));
}

StatusOr<v1::ListAgentsResponse> AgentRegistry::List(const v1::ListAgentsRequest& request, Moment now) const {
  const int size = request.page_size() == 0 ? kDefaultPage : request.page_size();
  RETURN_IF_ERROR(CheckRange("pageSize", size, 1, kLargestPage));
  Place after = {"", -1};
  if (!request.page_token().empty()) {
    const size_t slash = request.page_token().find('/');
    const std::string node = request.page_token().substr(0, slash);
    if (slash == std::string::npos || slash == 0 || slash > 4 ||
        node.find_first_not_of("0123456789") != std::string::npos) {
      return moeplan::error::Mismatch("pageToken", request.page_token(), "the token of the page before");
    }
    after = {request.page_token().substr(slash + 1), std::stoi(node)};
  }
  v1::ListAgentsResponse response;
  for (auto entry = agents_.upper_bound(after); entry != agents_.end(); ++entry) {
    const Agent& agent = entry->second;
    if (!request.cluster().empty() && agent.registration.cluster() != request.cluster()) continue;
    if (response.agents_size() == size) {
      response.set_next_page_token(TokenOf(response.agents(size - 1).registration()));
      break;
    }
    v1::AgentStatus& status = *response.add_agents();
    *status.mutable_registration() = agent.registration;
    status.mutable_registration()->clear_instance();
    status.set_state(agent.live ? v1::AgentStatus::LIVE : v1::AgentStatus::LOST);
    status.set_silent_s(std::max(0.0, std::chrono::duration<double>(now - agent.heard).count()));
    status.set_clock_jumps(agent.clock_jumps);
    status.set_last_clock_jump_s(agent.last_clock_jump_s);
    status.set_lost_because(agent.lost_because);
  }
  return response;
}

}  // namespace moeplan::service
