// Opens a database file: is it ours, of a version we know, undamaged; then set up as db/store.h promises.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "models/status.h"

namespace moeplan::db {

constexpr char kSelectSizeBytes[] = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
constexpr char kCheckIntegrity[] = "PRAGMA integrity_check(1)";

// The name by which SQLite opens exactly that file: by themselves, ":memory:" and "file:x.db" would be no files to it.
std::string NameForSqlite(const std::filesystem::path& path);

// Makes an empty file that its owner alone may read and write, where there is none; SQLite gives the files that it
// writes beside it the same mode. A file that is there is not touched, and one that cannot be made is left to SQLite,
// whose errors say why.
void MakePrivate(const std::filesystem::path& path);

// Both throw what SQLite throws: call them inside Guarded.
StatusOr<SQLite::Database> OpenForWriting(const std::filesystem::path& path, std::chrono::milliseconds busy_timeout);

// What tells a file, and what is written beside it, from the same file later.
struct FileState {
  struct One {
    std::uintmax_t bytes = 0;
    std::filesystem::file_time_type changed;

    friend bool operator==(const One&, const One&) = default;
  };
  std::optional<One> file, log;  // Absent: there is none.

  friend bool operator==(const FileState&, const FileState&) = default;
};
// Of the file that the path leads to. Never throws.
FileState StateOf(const std::filesystem::path& path);

struct Readable {
  SQLite::Database database;
  // Where `database` is a copy in memory, what the file was like before it was copied.
  std::optional<FileState> copied;
};
StatusOr<Readable> OpenForReading(const std::filesystem::path& path, std::chrono::milliseconds busy_timeout);

}  // namespace moeplan::db
