#include "db/guarded.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "db/errors.h"

namespace moeplan::db {

namespace fs = std::filesystem;

namespace {

constexpr int kJsonNotUtf8 = 316;  // nlohmann: "invalid UTF-8 byte".

Status OfSqlite(const SQLite::Exception& error, const fs::path& path) {
  if (error.getExtendedErrorCode() == SQLITE_IOERR_SHORT_READ) return error::Damaged(path, "it ends too early");
  switch (error.getErrorCode() & kPrimaryCodeMask) {
    case SQLITE_NOTADB: return error::NotADatabase(path);
    case SQLITE_CORRUPT: return error::Damaged(path, error.what());
    // Our SQL is fixed, so a statement that does not fit the tables tells of the tables.
    case SQLITE_ERROR: return error::Damaged(path, error.what());
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return error::Locked(path);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH: return error::Denied(path, "written", error.what());
    case SQLITE_CANTOPEN: return ExplainCannotOpen(path, /*for_writing=*/true);
    case SQLITE_FULL: return error::DiskFull(path);
    case SQLITE_IOERR: return error::DiskFailed(path, error.what());
    case SQLITE_TOOBIG: return error::TooBig(path);
    default: return error::Unexpected(path, error.what());
  }
}

Status OfJson(const nlohmann::json::exception& error, const fs::path& path) {
  return error.id == kJsonNotUtf8 ? error::NotUtf8(error.what()) : error::Damaged(path, error.what());
}

// The system's reason why this process may not use `path` in this way, or empty.
std::string Obstacle(const fs::path& path, int mode) {
  if (faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) == 0) return "";
  return std::generic_category().message(errno);
}

}  // namespace

fs::path FolderOf(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

Status StatusOfException(const fs::path& path) {
  try {
    throw;
  } catch (const SQLite::Exception& error) {
    return OfSqlite(error, path);
  } catch (const nlohmann::json::exception& error) {
    return OfJson(error, path);
  } catch (const DamagedRow& error) {
    return error::Damaged(path, error.what());
  } catch (const std::exception& error) {
    return error::Unexpected(path, error.what());
  }
}

Status ExplainCannotOpen(const fs::path& path, bool for_writing) {
  std::error_code system_error;
  const fs::file_status found = fs::status(path, system_error);
  if (found.type() == fs::file_type::none) return error::Denied(path, "reached", system_error.message());
  if (fs::is_directory(found)) return error::IsFolder(path);
  if (!fs::exists(found)) {
    if (!fs::is_directory(FolderOf(path), system_error)) return error::NoFolder(path);
    if (!for_writing) return error::NoFile(path);
  } else if (const std::string reason = Obstacle(path, R_OK); !reason.empty()) {
    return error::Denied(path, "read", reason);
  } else if (const std::string reason = Obstacle(path, W_OK); for_writing && !reason.empty()) {
    return error::Denied(path, "written", reason);
  }
  const std::string folder_reason = Obstacle(FolderOf(path), W_OK | X_OK);
  if (!folder_reason.empty()) return error::Denied(FolderOf(path), "written", folder_reason);
  return error::CannotOpen(path, "SQLite gives no reason; is the number of open files at its limit?");
}

}  // namespace moeplan::db
