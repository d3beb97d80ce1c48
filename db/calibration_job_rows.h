// Calibrations that were asked for as rows. Call inside a transaction and inside Guarded: SQLite's exceptions pass
// through.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "db/store.h"
#include "models/status.h"

namespace moeplan::db {

StatusOr<CalibrationJob> InsertCalibrationJob(SQLite::Database& database, const CalibrationJob& job,
                                              const std::string& created_at);
Status InsertCalibrationEvent(SQLite::Database& database, const std::filesystem::path& path, std::int64_t job,
                              const CalibrationEvent& event, const std::string& created_at);
StatusOr<CalibrationJob> SelectCalibrationJob(SQLite::Database& database, const std::filesystem::path& path,
                                              std::int64_t id);
StatusOr<CalibrationJobPage> SelectCalibrationJobs(SQLite::Database& database, const PageRequest& page,
                                                   const std::string& cluster);
StatusOr<std::vector<CalibrationJob>> SelectUnendedCalibrationJobs(SQLite::Database& database);

}  // namespace moeplan::db
