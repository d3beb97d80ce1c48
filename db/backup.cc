#include "db/backup.h"

#include <SQLiteCpp/Backup.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>

#include "db/connection.h"
#include "db/errors.h"
#include "db/guarded.h"
#include "models/text.h"

namespace moeplan::db {

namespace fs = std::filesystem;

namespace {

constexpr char kUseOneFile[] = "PRAGMA journal_mode = DELETE";
constexpr char kVacuum[] = "VACUUM";
constexpr char kEmptyLog[] = "PRAGMA wal_checkpoint(TRUNCATE)";

std::string Reason(int error) { return std::generic_category().message(error); }

// Gone with its owner unless it was kept.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(fs::path path) : path_(std::move(path)) {}
  ~UnfinishedFile() {
    std::error_code ignored;
    for (const char* part : {"", "-journal", "-wal", "-shm"}) fs::remove(path_.string() + part, ignored);
  }
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  const fs::path& path() const { return path_; }

 private:
  const fs::path path_;
};

Status Sync(const fs::path& path, int flags) {
  const int file = open(path.c_str(), flags | O_CLOEXEC);
  const bool synced = file >= 0 && fsync(file) == 0;
  const int error = errno;
  if (file >= 0) close(file);
  return synced ? OkStatus() : error::BackUpFailed(path, Reason(error));
}

// In one step, and so of one moment: in WAL mode a reader keeps no writer waiting.
void CopyAll(SQLite::Database& source, SQLite::Database& copy) {
  const int result = SQLite::Backup(copy, source).executeStep();  // Answers, not throws, when locked.
  source.check(result == SQLITE_DONE ? SQLITE_OK : result);
}

Status WriteChecked(SQLite::Database& source, const fs::path& path) {
  MakePrivate(path);
  SQLite::Database copy(NameForSqlite(path), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  CopyAll(source, copy);
  copy.exec(kUseOneFile);
  const std::string verdict = copy.execAndGet(kCheckIntegrity).getString();
  return verdict == "ok" ? OkStatus() : error::Damaged(path, verdict);
}

// Never over a file that came meanwhile.
Status Rename(const fs::path& from, const fs::path& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return OkStatus();
  if (errno == EEXIST) return error::BackUpExists(to);
  return error::BackUpFailed(to, Reason(errno));
}

}  // namespace

StatusOr<std::int64_t> BackUp(SQLite::Database& source, const fs::path& to) {
  std::error_code ignored;
  if (to.empty()) return error::NoPath();
  if (fs::exists(fs::symlink_status(to, ignored))) return error::BackUpExists(to);
  const UnfinishedFile unfinished(to.string() + StrCat(".unfinished-", static_cast<int>(getpid())));
  RETURN_IF_ERROR(Guarded(unfinished.path(), [&] { return WriteChecked(source, unfinished.path()); }));
  RETURN_IF_ERROR(Sync(unfinished.path(), O_RDONLY));
  RETURN_IF_ERROR(Rename(unfinished.path(), to));
  RETURN_IF_ERROR(Sync(FolderOf(to), O_RDONLY | O_DIRECTORY));
  return static_cast<std::int64_t>(fs::file_size(to));
}

std::int64_t FreeSpace(SQLite::Database& database) {
  const std::int64_t before = database.execAndGet(kSelectSizeBytes).getInt64();
  database.exec(kVacuum);
  // Until the log is back in the file, the file is as long as it was. A reader may prevent it: the next writer does it.
  (void)database.tryExec(kEmptyLog);
  return before - database.execAndGet(kSelectSizeBytes).getInt64();
}

}  // namespace moeplan::db
