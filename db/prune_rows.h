// The only place that removes rows. Call inside a transaction and inside Guarded: SQLite's exceptions pass through.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <optional>
#include <string>

#include "db/store.h"

namespace moeplan::db {

// As Store::PruneProfiles, dry or not; plans stored before `plans_before` (RFC 3339) protect nothing.
PruneOutcome Prune(SQLite::Database& database, const PruneRequest& request,
                   const std::optional<std::string>& plans_before);

}  // namespace moeplan::db
