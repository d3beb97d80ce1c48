// The session that `moeplan calibrate --db` keeps its samples under (planner/service/samples/sample_session.h), and
// which of an earlier command it goes on with.
#pragma once

#include <optional>
#include <string>

#include "db/store.h"
#include "models/status.h"

namespace moeplan::cli {

std::string NewSession(const std::string& profile_name, const std::string& taken_at);

// The request that makes the profile of a session: once the store knows it, the session has ended.
std::string RequestOfSession(const std::string& session);

// The last session of that name and cluster that did not end, of a command that does not run any more on this machine;
// absent: there is none.
StatusOr<std::optional<std::string>> InterruptedSession(const Store& store, const std::string& profile_name,
                                                        const Cluster& cluster);

}  // namespace moeplan::cli
