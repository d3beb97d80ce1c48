// These rows say to which caller the name of an agent belongs. Call inside a transaction and inside Guarded: SQLite's
// exceptions pass through.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <string>
#include <vector>

#include "db/store.h"

namespace moeplan::db {

void InsertAgentName(SQLite::Database& database, const AgentNameRecord& record, const std::string& bound_at);
// The last of each name, by name.
std::vector<AgentNameRecord> SelectAgentNames(SQLite::Database& database);

}  // namespace moeplan::db
