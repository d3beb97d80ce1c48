// Samples as rows. Call inside a transaction and inside Guarded: SQLite's and nlohmann's exceptions pass through.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <filesystem>
#include <string>
#include <vector>

#include "db/store.h"
#include "models/status.h"

namespace moeplan::db {

// Requires a validated batch. A refused one has changed nothing.
StatusOr<BatchOutcome> InsertBatch(SQLite::Database& database, const SampleBatch& batch,
                                   const std::string& received_at);

// kInvalidInput when the samples that are stored under this name are of another cluster.
Status CheckClusterOfName(SQLite::Database& database, const SampleSet& samples);

StatusOr<std::vector<Calibration>> SelectCalibrations(SQLite::Database& database, const std::filesystem::path& path,
                                                      const SampleFilter& filter);

bool HasBatch(SQLite::Database& database, const std::string& request_id);

}  // namespace moeplan::db
