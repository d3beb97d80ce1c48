// Tokens as rows.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <string>
#include <vector>

#include "db/store.h"
#include "models/status.h"

namespace moeplan::db {

Status InsertToken(SQLite::Database& database, const TokenRecord& token, const std::string& created_at);
StatusOr<std::vector<TokenRecord>> SelectTokens(SQLite::Database& database);
Status UpdateTokenRevoked(SQLite::Database& database, const std::filesystem::path& path, const std::string& name,
                          const std::string& revoked_at);

}  // namespace moeplan::db
