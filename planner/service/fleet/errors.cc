#include "planner/service/fleet/errors.h"

#include "models/text.h"

namespace moeplan::service::error {
namespace {

std::string Describe(const v1::AgentRegistration& agent) {
  const int last = agent.node() + agent.held_nodes() - 1;
  const std::string nodes =
      agent.held_nodes() == 1 ? StrCat("node ", agent.node()) : StrCat("nodes ", agent.node(), " to ", last);
  return StrCat("agent ", agent.name(), " (", nodes, ")");
}

std::string Shape(const v1::AgentRegistration& agent) {
  return StrCat(agent.nodes(), " nodes of ", agent.ranks_per_node(), " ranks on backend ", agent.backend());
}

}  // namespace

Status BadName(std::string_view field, const std::string& found) {
  return InvalidInput(StrCat(field, ": found '", found.substr(0, 80),
                             "', expected 1 to 64 letters, digits, dots, dashes and underscores"));
}

Status OutOfRange(std::string_view field, double found, double lowest, double highest) {
  return InvalidInput(StrCat(field, ": found ", found, ", expected ", lowest, " to ", highest));
}

Status TooMuchHardware(int entries, int most) {
  return InvalidInput(StrCat("hardware: found ", entries, " entries, expected at most ", most));
}

Status LongHardware(const std::string& name, size_t most_bytes) {
  return InvalidInput(StrCat("hardware.", name.substr(0, 80), ": found a longer text, expected at most ", most_bytes,
                             " bytes for name and value"));
}

Status OtherVersion(const v1::AgentRegistration& agent, std::string_view planner) {
  return Infeasible(StrCat("agent ", agent.name(), " is of version ", agent.version().substr(0, 80),
                           " and this planner of version ", planner, "; install the same version on every machine"));
}

Status NodeIsHeld(const v1::AgentRegistration& found, const v1::AgentRegistration& holder) {
  return Unavailable(StrCat("cluster ", found.cluster(), ": found ", Describe(found), " beside ", Describe(holder),
                            ", which is live; end one of them, or give it a --node-rank of its own"));
}

Status NameOfAnother(const std::string& name) {
  return PermissionDenied(StrCat("name: found ", name,
                                 ", which attached with another token or certificate before, expected a name of one's "
                                 "own; give --name"));
}

Status TooManyNames(const std::string& name, int most) {
  return PermissionDenied(StrCat("name: found ", name, " after ", most,
                                 " others that this token or certificate has attached under, expected at most as many; "
                                 "give each cluster a token of its own, and its agents names that stay"));
}

Status OtherShape(const v1::AgentRegistration& found, const v1::AgentRegistration& earlier) {
  return Unavailable(StrCat("cluster ", found.cluster(), ": found ", Shape(found), " at agent ", found.name(),
                            ", expected ", Shape(earlier), " as at the live agent ", earlier.name(),
                            "; start all agents of a cluster alike, or give it another --cluster"));
}

Status TooManyAgents(int most) {
  return Unavailable(StrCat("this planner has ", most, " agents, and takes no more; start another planner"));
}

Status SilentAgent(double lost_after_s) {
  return Unavailable(StrCat("nothing was heard of the agent for ", lost_after_s, " s"));
}

Status TakenOver() { return Unavailable("the agent has connected anew"); }

Status NotRegistered() { return InvalidInput("registration: found none, expected it as the first message"); }

Status RegisteredTwice() { return InvalidInput("registration: found another, expected one for each connection"); }

Status QueueOverflow() { return Unavailable("the agent does not read what is sent to it"); }

Status MessageTooLarge(size_t found_bytes, size_t most_bytes) {
  return InvalidInput(StrCat("message: found ", found_bytes, " bytes, expected at most ", most_bytes));
}

Status ShuttingDown() { return Unavailable("the planner shuts down"); }

Status NoDriver() { return Unimplemented("this planner has nothing to calibrate with; `moeplan serve` has"); }

Status TooManyCalibrations(int most) {
  return Unavailable(StrCat("there are ", most, " calibrations that have not ended; cancel one, or try again later"));
}

Status AgentsMissing(const std::string& missing, double wait_limit_s) {
  return Unavailable(
      StrCat(missing, "; waited ", wait_limit_s, " s; start `moeplan agent` there, then calibrate again"));
}

Status ClusterIsBusy(const std::string& cluster) {
  return Unavailable(StrCat("cluster ", cluster, ": its ranks are at work for another session"));
}

Status StoredMeanwhile(const std::string& profile_name, int drifted_version, int newest_version) {
  return Infeasible(StrCat("profile ", profile_name, " version ", newest_version, " was stored while version ",
                           drifted_version, " was being measured again"));
}

Status NoClusterOf(const std::string& profile_name) {
  return NotFound(StrCat("no agents have measured profile ", profile_name,
                         "; have them do it once (moeplan calibrate --planner, with this profile's name), or measure "
                         "again yourself (moeplan calibrate)"));
}

Status NothingMeasured() {
  return Infeasible("the budget was spent before anything was measured; calibrate again with a larger budget");
}

Status NothingCounts(int set_aside) {
  return Infeasible(StrCat("found ", set_aside,
                           " samples that cannot be right, expected one that can; `moeplan profile ",
                           "rejected` tells why"));
}

Status KeepsFailing(int times, const Status& last) {
  return Status(last.code(), StrCat("failed ", times, " times without a new sample: ", last.message()));
}

}  // namespace moeplan::service::error
