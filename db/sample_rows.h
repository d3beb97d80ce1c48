// Samples as rows. Call inside a transaction and inside Guarded: SQLite's and nlohmann's exceptions pass through.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <filesystem>
#include <string>
#include <vector>

#include "db/store.h"
#include "models/status.h"

namespace moeplan::db {

enum class Appended { kStored, kRepeated };

// Requires a validated batch.
StatusOr<Appended> InsertBatch(SQLite::Database& database, const SampleBatch& batch, const std::string& received_at);

StatusOr<std::vector<Calibration>> SelectCalibrations(SQLite::Database& database, const std::filesystem::path& path,
                                                      const SampleFilter& filter);

}  // namespace moeplan::db
