#include "db/connection.h"

#include <SQLiteCpp/Backup.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "db/errors.h"
#include "db/guarded.h"
#include "db/migrations.h"
#include "models/text.h"

namespace moeplan::db {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

namespace {

constexpr char kUseWriteAheadLog[] = "PRAGMA journal_mode = WAL";
constexpr char kSyncEveryCommit[] = "PRAGMA synchronous = FULL";
constexpr char kEnforceForeignKeys[] = "PRAGMA foreign_keys = ON";
constexpr char kCheckCells[] = "PRAGMA cell_size_check = ON";
constexpr char kRefuseChanges[] = "PRAGMA query_only = ON";
constexpr char kSelectApplicationId[] = "PRAGMA application_id";
constexpr char kCountTables[] = "SELECT count(*) FROM sqlite_schema";

// Whoever has a connection locks it (Store); SQLite's own lock, at every look at a column, was a fifth of reading
// samples.
constexpr int kRead = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX;
constexpr int kWrite = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;

constexpr std::int64_t kLargestCheckedBytes = 64 << 20;

bool IsEmpty(SQLite::Database& database) {
  return SchemaVersion(database) == 0 && database.execAndGet(kCountTables).getInt() == 0;
}

// One snapshot, because another process may be creating the tables at this moment.
Status CheckIdentity(SQLite::Database& database, const fs::path& path) {
  SQLite::Transaction snapshot(database);
  if (IsEmpty(database)) return OkStatus();
  if (database.execAndGet(kSelectApplicationId).getInt() != kApplicationId) return error::AnotherProgram(path);
  const int version = SchemaVersion(database);
  if (version < 1) return error::Damaged(path, StrCat("found schema version ", version));
  if (version > kSchemaVersion) return error::NewerVersion(path, version, kSchemaVersion);
  return OkStatus();
}

Status CheckIntegrity(SQLite::Database& database, const fs::path& path) {
  if (database.execAndGet(kSelectSizeBytes).getInt64() > kLargestCheckedBytes) return OkStatus();
  const std::string verdict = database.execAndGet(kCheckIntegrity).getString();
  return verdict == "ok" ? OkStatus() : error::Damaged(path, verdict);
}

// SQLite answers "busy" at once, without its own waiting, when two processes switch a new file to WAL together.
void UseWriteAheadLog(SQLite::Database& database, milliseconds busy_timeout) {
  const auto deadline = std::chrono::steady_clock::now() + busy_timeout;
  int result = database.tryExec(kUseWriteAheadLog);
  while ((result & kPrimaryCodeMask) == SQLITE_BUSY && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(5));
    result = database.tryExec(kUseWriteAheadLog);
  }
  database.check(result);
}

void Configure(SQLite::Database& database, milliseconds busy_timeout) {
  UseWriteAheadLog(database, busy_timeout);
  database.exec(kSyncEveryCommit);
  database.exec(kEnforceForeignKeys);
}

SQLite::Database CopyInMemory(SQLite::Database& source) {
  SQLite::Database copy(":memory:", kWrite | SQLite::OPEN_CREATE);
  const int result = SQLite::Backup(copy, source).executeStep();  // Answers, not throws, when locked.
  source.check(result == SQLITE_DONE ? SQLITE_OK : result);
  return copy;
}

std::string PercentEncoded(const std::string& path) {
  std::string text;
  for (const char letter : path) {
    switch (letter) {
      case '%': text += "%25"; break;
      case '?': text += "%3f"; break;
      case '#': text += "%23"; break;
      default: text += letter;
    }
  }
  return text;
}

bool HasWriteAheadLog(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path.string() + "-wal", ignored);
}

bool MayWrite(const fs::path& path) { return faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0; }

SQLite::Database CopyOfWholeFile(const fs::path& path) {
  const std::string uri = StrCat("file:", PercentEncoded(fs::absolute(path).string()), "?immutable=1");
  SQLite::Database whole(uri, kRead | SQLite::OPEN_URI);
  return CopyInMemory(whole);
}

// Reading in WAL mode takes two side files. A connection that may write the database removes them when it is the last
// to close, so we open for writing where we may, and leave no files of ours to bar other users. Where we may not and
// nobody has the database open, the file alone is all of it.
Readable OpenReadable(const fs::path& path, milliseconds busy_timeout) {
  const int timeout_ms = static_cast<int>(busy_timeout.count());
  if (MayWrite(path) && MayWrite(FolderOf(path))) {
    SQLite::Database database(NameForSqlite(path), kWrite, timeout_ms);
    database.exec(kRefuseChanges);
    return {.database = std::move(database), .copied = std::nullopt};
  }
  if (!HasWriteAheadLog(path)) {
    const FileState before = StateOf(path);
    SQLite::Database copy = CopyOfWholeFile(path);
    // Else a writer came, and the copy may be of two moments.
    if (!HasWriteAheadLog(path)) return {.database = std::move(copy), .copied = before};
  }
  return {.database = SQLite::Database(NameForSqlite(path), kRead, timeout_ms), .copied = std::nullopt};
}

// SQLite keeps what it writes beside a file beside the file itself, not beside a link to it.
fs::path BehindLinks(const fs::path& path) {
  std::error_code unknown;
  const fs::path behind = fs::canonical(path, unknown);
  return unknown ? path : behind;
}

std::optional<FileState::One> StateOfOne(const fs::path& path) {
  std::error_code absent;
  FileState::One state = {.bytes = fs::file_size(path, absent), .changed = {}};
  if (absent) return std::nullopt;
  state.changed = fs::last_write_time(path, absent);
  return absent ? std::nullopt : std::optional(state);
}

}  // namespace

std::string NameForSqlite(const fs::path& path) {
  const std::string name = path.string();
  return name.starts_with(':') || name.starts_with("file:") ? "./" + name : name;
}

void MakePrivate(const fs::path& path) {
  constexpr int kMostLinks = 40;
  fs::path file = path;
  std::error_code absent;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(file, absent)); ++i) {
    file = FolderOf(file) / fs::read_symlink(file, absent);
  }
  // Exclusively: closing a file that is there would give up the locks that this process has on it (POSIX).
  const int made = open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  if (made >= 0) close(made);
}

FileState StateOf(const fs::path& path) {
  const fs::path file = BehindLinks(path);
  return {.file = StateOfOne(file), .log = StateOfOne(file.string() + "-wal")};
}

StatusOr<SQLite::Database> OpenForWriting(const fs::path& path, milliseconds busy_timeout) {
  if (path.empty()) return error::NoPath();
  MakePrivate(path);
  SQLite::Database database(NameForSqlite(path), kWrite | SQLite::OPEN_CREATE, static_cast<int>(busy_timeout.count()));
  if (sqlite3_db_readonly(database.getHandle(), "main") == 1) return ExplainCannotOpen(path, /*for_writing=*/true);
  database.exec(kCheckCells);
  RETURN_IF_ERROR(CheckIdentity(database, path));
  RETURN_IF_ERROR(CheckIntegrity(database, path));
  Configure(database, busy_timeout);
  Migrate(database, kSchemaVersion);
  return database;
}

StatusOr<Readable> OpenForReading(const fs::path& path, milliseconds busy_timeout) {
  if (path.empty()) return error::NoPath();
  // SQLite's own error for an absent file reads like one of permission.
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return ExplainCannotOpen(path, /*for_writing=*/false);
  const FileState before = StateOf(path);
  Readable opened = OpenReadable(BehindLinks(path), busy_timeout);
  SQLite::Database& database = opened.database;
  database.exec(kCheckCells);
  RETURN_IF_ERROR(CheckIdentity(database, path));
  if (IsEmpty(database)) return error::EmptyFile(path);
  RETURN_IF_ERROR(CheckIntegrity(database, path));
  if (SchemaVersion(database) == kSchemaVersion) return opened;
  SQLite::Database copy = CopyInMemory(database);
  Migrate(copy, kSchemaVersion);
  return Readable{.database = std::move(copy), .copied = before};
}

}  // namespace moeplan::db
