// Opens a database file: is it ours, of a version we know, undamaged; then set up as db/store.h promises.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <chrono>
#include <filesystem>

#include "models/status.h"

namespace moeplan::db {

// Both throw what SQLite throws: call them inside Guarded.
StatusOr<SQLite::Database> OpenForWriting(const std::filesystem::path& path, std::chrono::milliseconds busy_timeout);
StatusOr<SQLite::Database> OpenForReading(const std::filesystem::path& path, std::chrono::milliseconds busy_timeout);

}  // namespace moeplan::db
