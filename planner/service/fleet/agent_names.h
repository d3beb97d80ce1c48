// Whose the names of agents are. The first caller (access/caller.h) that attaches an agent under a name has it from
// then on, across connections and restarts of the planner: nobody else may attach under it, or name it in the
// provenance of samples. A name is free again once the token that had it is revoked and none of that token's name has
// taken its place.
//
// Where the planner cannot tell callers from each other (it asks for no tokens and no certificates), everybody may
// attach under every name.
//
// Threads: any.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "db/store.h"
#include "models/status.h"

namespace moeplan::service {

class AgentNames {
 public:
  // `store` is borrowed. `is_token` tells whether there is a token of that name that is not revoked.
  AgentNames(Store& store, std::function<bool(const std::string& token)> is_token);

  // Reads what the store knows; before the first call of the others.
  Status Load();

  // Takes the name for the caller, for good, unless it has it. kPermissionDenied: another has it. Errors of the store.
  Status Claim(const std::string& name, const std::string& caller);

  // Whether the caller has the name. Requires a caller who can be told from others.
  bool Has(const std::string& name, const std::string& caller) const;

 private:
  bool IsFree(const std::string& owner) const;

  Store& store_;
  const std::function<bool(const std::string& token)> is_token_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> callers_;  // By name. Guarded by mutex_.
};

}  // namespace moeplan::service
