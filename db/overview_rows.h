// What is known under each name, in numbers. Call inside a transaction and inside Guarded: SQLite's exceptions pass
// through.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include "db/store.h"
#include "models/status.h"

namespace moeplan::db {

StatusOr<OverviewPage> SelectOverviewPage(SQLite::Database& database, const PageRequest& page);

}  // namespace moeplan::db
