// Plans and their measured runs as rows. Call inside a transaction and inside Guarded: SQLite's exceptions pass
// through.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "db/store.h"
#include "models/status.h"

namespace moeplan::db {

StatusOr<PlanId> InsertPlan(SQLite::Database& database, const std::filesystem::path& path, const PlanRecord& plan,
                            const std::string& created_at);
StatusOr<PlanRecord> SelectPlan(SQLite::Database& database, const std::filesystem::path& path, PlanId id);

StatusOr<RunId> InsertRun(SQLite::Database& database, const std::filesystem::path& path, const RunRecord& run,
                          const std::string& created_at);
std::optional<RunId> SelectRunOfRequest(SQLite::Database& database, const std::string& request_id);
StatusOr<RunPage> SelectRunPage(SQLite::Database& database, const std::filesystem::path& path, const PageRequest& page,
                                const std::optional<std::string>& profile_name);
StatusOr<StoredRun> SelectStoredRun(SQLite::Database& database, const std::filesystem::path& path, RunId id);
StatusOr<std::vector<RunRecord>> SelectRuns(SQLite::Database& database, const std::filesystem::path& path, PlanId plan);

}  // namespace moeplan::db
