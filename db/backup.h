// A copy of a database that others go on writing, and the file's unused space given back.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <filesystem>

#include "models/status.h"

namespace moeplan::db {

// Both throw what SQLite throws: call them inside Guarded, outside any transaction.
// As Store::BackUp. What goes wrong with `to` is an error that names it.
StatusOr<std::int64_t> BackUp(SQLite::Database& source, const std::filesystem::path& to);
// As Store::FreeSpace.
std::int64_t FreeSpace(SQLite::Database& database);

}  // namespace moeplan::db
