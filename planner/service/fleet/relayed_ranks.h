// RelayedRanks are the ranks of a cluster, started anew behind its agents, and what the agents said of them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "proto/rank_links.h"

namespace moeplan::service {

struct RelayedRanks {
  // A rank is also lost with its agent. The links must go before the AgentHub does.
  std::unique_ptr<RankLinks> links;
  std::string backend;
  std::map<std::string, std::string> provenance;  // What samples say of the agents' machines.
  double collective_deadline_s = 0;               // 0: the agents asked for none.
};

}  // namespace moeplan::service
