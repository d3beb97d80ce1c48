// Keys whose earlier samples do not count any more. Call inside a transaction and inside Guarded.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "db/key_columns.h"
#include "models/status.h"

namespace moeplan::db {

struct RetiredKey {
  CostKey key;
  std::int64_t before_batch_id = 0;  // Samples of earlier batches are retired.
};

// As Store::RetireSamples.
Status RetireKeys(SQLite::Database& database, const std::filesystem::path& path, const std::string& profile_name,
                  std::span<const CostKey> keys, const std::string& calibration);

std::vector<RetiredKey> SelectRetired(SQLite::Database& database, const std::string& profile_name);

}  // namespace moeplan::db
