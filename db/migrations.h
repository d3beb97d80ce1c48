// The schema as numbered steps: `PRAGMA user_version` says how many of them a file has seen.
//
// A step that has been released is never edited; the next change is the next step.
#pragma once

namespace SQLite {
class Database;
}

namespace moeplan::db {

// "MoEP" in ASCII: marks a file as ours.
inline constexpr int kApplicationId = 0x4D6F4550;
inline constexpr int kSchemaVersion = 10;

int SchemaVersion(SQLite::Database& database);

// Applies the steps that `database` lacks up to `version`, each in a transaction of its own; a file already at or past
// `version` is left alone. Safe against other processes that do the same. Throws SQLite::Exception.
void Migrate(SQLite::Database& database, int version);

}  // namespace moeplan::db
