#include "planner/service/fleet/agent_names.h"

#include <optional>
#include <utility>
#include <vector>

#include "planner/service/access/caller.h"
#include "planner/service/fleet/errors.h"

namespace moeplan::service {

AgentNames::AgentNames(Store& store, std::function<bool(const std::string& token)> is_token, int most_names)
    : store_(store), is_token_(std::move(is_token)), most_names_(most_names) {}

Status AgentNames::Load() {
  ASSIGN_OR_RETURN(const std::vector<AgentNameRecord> records, store_.AgentNames());
  const std::scoped_lock lock(mutex_);
  for (const AgentNameRecord& record : records) Give(record.name, record.caller);
  return OkStatus();
}

void AgentNames::Give(const std::string& name, const std::string& caller) {
  std::string& owner = callers_[name];
  if (!owner.empty()) --counts_[owner];
  owner = caller;
  ++counts_[caller];
}

bool AgentNames::IsFree(const std::string& owner) const {
  const std::optional<std::string> token = TokenNameOf(owner);
  return token && !is_token_(*token);
}

Status AgentNames::MayClaimLocked(const std::string& name, const std::string& caller) const {
  const auto owner = callers_.find(name);
  if (caller.empty() || (owner != callers_.end() && owner->second == caller)) return OkStatus();
  if (owner != callers_.end() && !IsFree(owner->second)) return error::NameOfAnother(name);
  const auto has = counts_.find(caller);
  return has != counts_.end() && has->second >= most_names_ ? error::TooManyNames(name, most_names_) : OkStatus();
}

Status AgentNames::MayClaim(const std::string& name, const std::string& caller) const {
  const std::scoped_lock lock(mutex_);
  return MayClaimLocked(name, caller);
}

Status AgentNames::Claim(const std::string& name, const std::string& caller) {
  const std::scoped_lock lock(mutex_);
  RETURN_IF_ERROR(MayClaimLocked(name, caller));
  const auto owner = callers_.find(name);
  if (caller.empty() || (owner != callers_.end() && owner->second == caller)) return OkStatus();
  RETURN_IF_ERROR(store_.BindAgentName({.name = name, .caller = caller}));
  Give(name, caller);
  return OkStatus();
}

bool AgentNames::Has(const std::string& name, const std::string& caller) const {
  const std::scoped_lock lock(mutex_);
  const auto owner = callers_.find(name);
  return owner != callers_.end() && owner->second == caller;
}

}  // namespace moeplan::service
