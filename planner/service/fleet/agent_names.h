// Whose the names of agents are. The first caller (access/caller.h) that attaches an agent under a name has it from
// then on, across connections and restarts of the planner: nobody else may attach under it, or name it in the
// provenance of samples. A name is free again once the token that had it is revoked (that its time is over is not
// enough) and none of that token's name has taken its place.
//
// A caller who attached under kMostNamesOfACaller names gets no more, so that nobody takes them all: a fleet of many
// clusters gives each a token.
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

inline constexpr int kMostNamesOfACaller = 65536;

class AgentNames {
 public:
  // `store` is borrowed. `is_token` tells whether there is a token of that name that is not revoked.
  AgentNames(Store& store, std::function<bool(const std::string& token)> is_token,
             int most_names = kMostNamesOfACaller);

  // Reads what the store knows; before the first call of the others.
  Status Load();

  // The errors of Claim but those of the store; takes nothing.
  Status MayClaim(const std::string& name, const std::string& caller) const;

  // Takes the name for the caller, for good, unless it has it. kPermissionDenied: another has it, or the caller has as
  // many as one may have. Errors of the store.
  Status Claim(const std::string& name, const std::string& caller);

  // Whether the caller has the name. Requires a caller who can be told from others.
  bool Has(const std::string& name, const std::string& caller) const;

 private:
  bool IsFree(const std::string& owner) const;
  Status MayClaimLocked(const std::string& name, const std::string& caller) const;
  void Give(const std::string& name, const std::string& caller);

  Store& store_;
  const std::function<bool(const std::string& token)> is_token_;
  const int most_names_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> callers_;  // By name. Guarded by mutex_, as below.
  std::map<std::string, int> counts_;           // How many names each caller has.
};

}  // namespace moeplan::service
