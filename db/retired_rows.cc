#include "db/retired_rows.h"

#include <algorithm>

#include "db/errors.h"
#include "db/seal.h"

namespace moeplan::db {
namespace {

constexpr char kSelectFirstBatch[] = R"sql(
SELECT min(sample_batch.id) FROM sample_batch JOIN calibration ON calibration.id = calibration_id
WHERE calibration = ?)sql";
constexpr char kInsertRetired[] = R"sql(
INSERT INTO retired_key (profile_name, before_batch_id, collective, algorithm, group_size, ranks_per_node,
                         gather_group_size, shards, contention, bytes_per_element, kernel, model_dim, hidden_dim, ctas)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?))sql";
constexpr char kSelectRetiredIds[] = "SELECT id FROM retired_key WHERE profile_name = ? ORDER BY id";
constexpr char kSelectRetired[] = R"sql(
SELECT profile_name, before_batch_id, collective, algorithm, group_size, ranks_per_node, gather_group_size, shards,
       contention, bytes_per_element, kernel, model_dim, hidden_dim, ctas
FROM retired_key WHERE id = ?)sql";

constexpr int kFirstKeyColumn = 2;
constexpr SealedThing kRetiredKey = {.name = "retired_key", .head = kSelectRetired};

}  // namespace

Status RetireKeys(SQLite::Database& database, const std::filesystem::path& path, const std::string& profile_name,
                  std::span<const CostKey> keys, const std::string& calibration) {
  SQLite::Statement first(database, kSelectFirstBatch);
  first.bind(1, calibration);
  if (!first.executeStep() || first.isColumnNull(0)) return error::NoSamples(path);
  const std::int64_t before_batch_id = first.getColumn(0).getInt64();
  const std::vector<RetiredKey> known = SelectRetired(database, profile_name);
  for (const CostKey& key : keys) {
    const bool retired = std::ranges::any_of(
        known, [&](const RetiredKey& one) { return one.key == key && one.before_batch_id >= before_batch_id; });
    if (retired) continue;
    SQLite::Statement insert(database, kInsertRetired);
    insert.bind(1, profile_name);
    insert.bind(2, before_batch_id);
    BindKey(insert, kFirstKeyColumn + 1, kFirstKeyColumn + kKeyColumns + 1, key);
    insert.exec();
    Seal(database, kRetiredKey, database.getLastInsertRowid());
  }
  return OkStatus();
}

std::vector<RetiredKey> SelectRetired(SQLite::Database& database, const std::string& profile_name) {
  SQLite::Statement ids(database, kSelectRetiredIds);
  ids.bind(1, profile_name);
  std::vector<RetiredKey> retired;
  while (ids.executeStep()) {
    const std::int64_t id = ids.getColumn(0).getInt64();
    CheckSeal(database, kRetiredKey, id);
    SQLite::Statement select(database, kSelectRetired);
    select.bind(1, id);
    select.executeStep();
    retired.push_back({.key = ReadKey(select, kFirstKeyColumn, kFirstKeyColumn + kKeyColumns),
                       .before_batch_id = select.getColumn(1).getInt64()});
  }
  return retired;
}

}  // namespace moeplan::db
