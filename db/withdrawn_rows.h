// Samples that are taken out of the fits, as rows. Call inside a transaction and inside Guarded: SQLite's and
// nlohmann's exceptions pass through.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "db/store.h"
#include "models/status.h"

namespace moeplan::db {

// Moves what the request selects to the rejected samples and seals both anew; kNotFound when nothing was ever stored
// under the name. `version` of the outcome is left to the caller.
StatusOr<WithdrawOutcome> MoveWithdrawn(SQLite::Database& database, const std::filesystem::path& path,
                                        const WithdrawRequest& request, const std::string& withdrawn_at);

// The number of the last withdrawal; 0 when there was none.
std::int64_t SelectLatestWithdrawal(SQLite::Database& database);

}  // namespace moeplan::db
