#include "db/token_rows.h"

#include <cstdint>

#include "db/errors.h"
#include "db/seal.h"

namespace moeplan::db {
namespace {

constexpr char kInsertToken[] = R"sql(
INSERT INTO token (name, role, sha256, expires_at, created_at) VALUES (?, ?, ?, ?, ?))sql";
constexpr char kSelectTokenIds[] = "SELECT id, revoked_at FROM token ORDER BY id";
constexpr char kSelectToken[] = "SELECT name, role, sha256, expires_at, created_at FROM token WHERE id = ?";
constexpr char kRevoke[] = "UPDATE token SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL";
constexpr char kSelectValid[] = "SELECT 1 FROM token WHERE name = ? AND revoked_at IS NULL";

constexpr SealedThing kToken = {.name = "token", .head = kSelectToken};

bool HasValid(SQLite::Database& database, const std::string& name) {
  SQLite::Statement select(database, kSelectValid);
  select.bind(1, name);
  return select.executeStep();
}

}  // namespace

Status InsertToken(SQLite::Database& database, const TokenRecord& token, const std::string& created_at) {
  if (HasValid(database, token.name)) return error::TokenExists(token.name);
  SQLite::Statement insert(database, kInsertToken);
  insert.bind(1, token.name);
  insert.bind(2, token.role);
  insert.bind(3, token.sha256);
  insert.bind(4, token.expires_at);
  insert.bind(5, created_at);
  insert.exec();
  Seal(database, kToken, database.getLastInsertRowid());
  return OkStatus();
}

StatusOr<std::vector<TokenRecord>> SelectTokens(SQLite::Database& database) {
  std::vector<TokenRecord> tokens;
  SQLite::Statement ids(database, kSelectTokenIds);
  while (ids.executeStep()) {
    const std::int64_t id = ids.getColumn(0).getInt64();
    CheckSeal(database, kToken, id);
    SQLite::Statement select(database, kSelectToken);
    select.bind(1, id);
    select.executeStep();
    tokens.push_back({.name = select.getColumn(0).getString(),
                      .role = select.getColumn(1).getString(),
                      .sha256 = select.getColumn(2).getString(),
                      .expires_at = select.getColumn(3).getString(),
                      .created_at = select.getColumn(4).getString(),
                      .revoked_at = ids.getColumn(1).getString()});  // NULL reads as empty.
  }
  return tokens;
}

Status UpdateTokenRevoked(SQLite::Database& database, const std::filesystem::path& path, const std::string& name,
                          const std::string& revoked_at) {
  SQLite::Statement revoke(database, kRevoke);
  revoke.bind(1, revoked_at);
  revoke.bind(2, name);
  return revoke.exec() > 0 ? OkStatus() : error::NoToken(path, name);
}

}  // namespace moeplan::db
