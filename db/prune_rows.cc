#include "db/prune_rows.h"

#include <cstdint>
#include <vector>

#include "db/key_columns.h"

namespace moeplan::db {
namespace {

// Versions with at least ?1 newer ones of their name, and whether a plan that counts refers to them.
constexpr char kSelectOldVersions[] = R"sql(
SELECT id, name, version, created_at,
       EXISTS (SELECT 1 FROM plan WHERE profile_name = old.name AND profile_version = old.version
                                    AND (?3 IS NULL OR plan.created_at >= ?3))
FROM profile AS old
WHERE (?2 IS NULL OR name = ?2)
  AND (SELECT count(*) FROM profile WHERE name = old.name AND version > old.version) >= ?1
ORDER BY id)sql";

// Each with the id of the profile that goes.
constexpr char kSelectPlans[] = R"sql(
SELECT plan.id FROM plan JOIN profile ON profile_name = name AND profile_version = version WHERE profile.id = ?)sql";
constexpr char kSelectRuns[] = "SELECT id FROM run WHERE plan_id = ?";
// Versions saved before schema 4 do not know their last batch: what was there a second before counts as theirs.
constexpr char kSelectBatches[] = R"sql(
SELECT sample_batch.id
FROM profile
  JOIN calibration ON calibration.profile_name = profile.name
  JOIN sample_batch ON calibration_id = calibration.id
WHERE profile.id = ?
  AND (sample_batch.id <= last_batch_id OR (last_batch_id IS NULL AND received_at < profile.created_at)))sql";

constexpr char kDeleteEmptyCalibrations[] =
    "DELETE FROM calibration WHERE NOT EXISTS (SELECT 1 FROM sample_batch WHERE calibration_id = calibration.id)";
constexpr char kDeleteUnusedProvenance[] = R"sql(
DELETE FROM provenance_text
WHERE id NOT IN (SELECT provenance_id FROM sample WHERE provenance_id IS NOT NULL
                 UNION SELECT provenance_id FROM rejected_sample))sql";

std::vector<std::int64_t> Ids(SQLite::Database& database, const char* query, std::int64_t of) {
  SQLite::Statement select(database, query);
  select.bind(1, of);
  std::vector<std::int64_t> ids;
  while (select.executeStep()) ids.push_back(select.getColumn(0).getInt64());
  return ids;
}

// The number of rows removed.
int Delete(SQLite::Database& database, const char* statement, std::int64_t id) {
  SQLite::Statement remove(database, statement);
  remove.bind(1, id);
  return remove.exec();
}

void DeleteSeal(SQLite::Database& database, const char* thing, std::int64_t id) {
  SQLite::Statement remove(database, "DELETE FROM seal WHERE thing = ? AND id = ?");
  remove.bind(1, thing);
  remove.bind(2, id);
  remove.exec();
}

void DeleteRuns(SQLite::Database& database, std::int64_t plan_id, PruneOutcome& outcome) {
  for (const std::int64_t run_id : Ids(database, kSelectRuns, plan_id)) {
    outcome.runs += Delete(database, "DELETE FROM run WHERE id = ?", run_id);
    DeleteSeal(database, "run", run_id);
  }
}

void DeletePlans(SQLite::Database& database, std::int64_t profile_id, PruneOutcome& outcome) {
  for (const std::int64_t plan_id : Ids(database, kSelectPlans, profile_id)) {
    DeleteRuns(database, plan_id, outcome);
    outcome.plans += Delete(database, "DELETE FROM plan WHERE id = ?", plan_id);
    DeleteSeal(database, "plan", plan_id);
  }
}

void DeleteSamples(SQLite::Database& database, std::int64_t profile_id, PruneOutcome& outcome) {
  for (const std::int64_t batch_id : Ids(database, kSelectBatches, profile_id)) {
    outcome.samples += Delete(database, "DELETE FROM sample WHERE batch_id = ?", batch_id);
    outcome.rejected_samples += Delete(database, "DELETE FROM rejected_sample WHERE batch_id = ?", batch_id);
    Delete(database, "DELETE FROM sample_batch WHERE id = ?", batch_id);
    DeleteSeal(database, "sample_batch", batch_id);
    DeleteSeal(database, "rejected_sample", batch_id);
  }
}

void DeleteProfile(SQLite::Database& database, std::int64_t id) {
  Delete(database, "DELETE FROM profile_request WHERE profile_id = ?", id);
  Delete(database, "DELETE FROM cost_model WHERE profile_id = ?", id);
  Delete(database, "DELETE FROM profile WHERE id = ?", id);
  DeleteSeal(database, "profile", id);
}

}  // namespace

PruneOutcome Prune(SQLite::Database& database, const PruneRequest& request,
                   const std::optional<std::string>& plans_before) {
  SQLite::Statement select(database, kSelectOldVersions);
  select.bind(1, request.keep);
  BindOptional(select, 2, request.profile_name);
  BindOptional(select, 3, plans_before);
  PruneOutcome outcome;
  std::vector<std::int64_t> ids;
  while (select.executeStep()) {
    const bool in_use = select.getColumn(4).getInt() != 0;
    if (!in_use) ids.push_back(select.getColumn(0).getInt64());
    (in_use ? outcome.in_use : outcome.removed)
        .push_back({.name = select.getColumn(1).getString(),
                    .version = select.getColumn(2).getInt(),
                    .created_at = select.getColumn(3).getString()});
  }
  for (const std::int64_t id : ids) {
    DeletePlans(database, id, outcome);
    if (request.samples) DeleteSamples(database, id, outcome);
    DeleteProfile(database, id);
  }
  if (request.samples) {
    database.exec(kDeleteEmptyCalibrations);
    database.exec(kDeleteUnusedProvenance);
  }
  return outcome;
}

}  // namespace moeplan::db
