#include "db/plan_rows.h"

#include <cstdint>

#include "db/errors.h"
#include "db/key_columns.h"
#include "db/page.h"
#include "db/profile_rows.h"
#include "db/seal.h"

namespace moeplan::db {
namespace {

constexpr char kInsertPlan[] = R"sql(
INSERT INTO plan (profile_name, profile_version, workload, answer, created_at) VALUES (?, ?, ?, ?, ?))sql";
constexpr char kSelectPlan[] =
    "SELECT profile_name, profile_version, workload, answer, created_at FROM plan WHERE id = ?";
constexpr char kInsertRun[] = R"sql(
INSERT INTO run (plan_id, schedule, predicted_time_s, measured_time_s, report, created_at, request_id)
VALUES (?, ?, ?, ?, ?, ?, ?))sql";
constexpr char kSelectRunOfRequest[] = "SELECT id FROM run WHERE request_id = ?";
constexpr char kSelectRunsOfPlan[] = "SELECT id FROM run WHERE plan_id = ? ORDER BY id";
constexpr char kSelectRunPage[] = R"sql(
SELECT run.id FROM run JOIN plan ON plan.id = plan_id
WHERE run.id < ?1 AND (?2 IS NULL OR profile_name = ?2)
ORDER BY run.id DESC LIMIT ?3)sql";
constexpr char kSelectRun[] = R"sql(
SELECT plan_id, schedule, predicted_time_s, measured_time_s, report, created_at, request_id FROM run WHERE id = ?)sql";

constexpr SealedThing kPlan = {.name = "plan", .head = kSelectPlan};
constexpr SealedThing kRun = {.name = "run", .head = kSelectRun};

bool HasPlan(SQLite::Database& database, PlanId id) {
  SQLite::Statement select(database, kSelectPlan);
  select.bind(1, id.value);
  return select.executeStep();
}

void BindProfileVersion(SQLite::Statement& statement, int index, int version) {
  if (version > 0) {
    statement.bind(index, version);
  } else {
    statement.bind(index);
  }
}

RunRecord SelectRun(SQLite::Database& database, std::int64_t id) {
  CheckSeal(database, kRun, id);
  SQLite::Statement select(database, kSelectRun);
  select.bind(1, id);
  select.executeStep();
  return {.plan = {select.getColumn(0).getInt64()},
          .schedule = select.getColumn(1).getString(),
          .predicted_time_s = select.getColumn(2).getDouble(),
          .measured_time_s = select.getColumn(3).getDouble(),
          .report = select.getColumn(4).getString(),
          .request_id = select.getColumn(6).getString(),  // NULL reads as "".
          .created_at = select.getColumn(5).getString()};
}

}  // namespace

StatusOr<PlanId> InsertPlan(SQLite::Database& database, const std::filesystem::path& path, const PlanRecord& plan,
                            const std::string& created_at) {
  if (plan.profile_version > 0 && !HasProfile(database, plan.profile_name, plan.profile_version)) {
    return error::NoProfileVersion(path, plan.profile_name, plan.profile_version);
  }
  SQLite::Statement insert(database, kInsertPlan);
  insert.bind(1, plan.profile_name);
  BindProfileVersion(insert, 2, plan.profile_version);
  insert.bind(3, plan.workload);
  insert.bind(4, plan.answer);
  insert.bind(5, created_at);
  insert.exec();
  const PlanId id = {database.getLastInsertRowid()};
  Seal(database, kPlan, id.value);
  return id;
}

StatusOr<PlanRecord> SelectPlan(SQLite::Database& database, const std::filesystem::path& path, PlanId id) {
  if (!HasPlan(database, id)) return error::NoPlan(path, id.value);
  CheckSeal(database, kPlan, id.value);
  SQLite::Statement select(database, kSelectPlan);
  select.bind(1, id.value);
  select.executeStep();
  return PlanRecord{.profile_name = select.getColumn(0).getString(),
                    .profile_version = select.getColumn(1).getInt(),  // NULL reads as 0.
                    .workload = select.getColumn(2).getString(),
                    .answer = select.getColumn(3).getString(),
                    .created_at = select.getColumn(4).getString()};
}

StatusOr<RunId> InsertRun(SQLite::Database& database, const std::filesystem::path& path, const RunRecord& run,
                          const std::string& created_at) {
  if (!HasPlan(database, run.plan)) return error::NoPlan(path, run.plan.value);
  if (const std::optional<RunId> known = SelectRunOfRequest(database, run.request_id)) return *known;
  SQLite::Statement insert(database, kInsertRun);
  insert.bind(1, run.plan.value);
  insert.bind(2, run.schedule);
  insert.bind(3, run.predicted_time_s);
  insert.bind(4, run.measured_time_s);
  insert.bind(5, run.report);
  insert.bind(6, created_at);
  if (!run.request_id.empty()) insert.bind(7, run.request_id);
  insert.exec();
  const RunId id = {database.getLastInsertRowid()};
  Seal(database, kRun, id.value);
  return id;
}

std::optional<RunId> SelectRunOfRequest(SQLite::Database& database, const std::string& request_id) {
  SQLite::Statement select(database, kSelectRunOfRequest);
  select.bind(1, request_id);
  if (!select.executeStep()) return std::nullopt;
  return RunId{select.getColumn(0).getInt64()};
}

StatusOr<std::vector<RunRecord>> SelectRuns(SQLite::Database& database, const std::filesystem::path& path,
                                            PlanId plan) {
  if (!HasPlan(database, plan)) return error::NoPlan(path, plan.value);
  SQLite::Statement select(database, kSelectRunsOfPlan);
  select.bind(1, plan.value);
  std::vector<RunRecord> runs;
  while (select.executeStep()) runs.push_back(SelectRun(database, select.getColumn(0).getInt64()));
  return runs;
}

StatusOr<StoredRun> SelectStoredRun(SQLite::Database& database, const std::filesystem::path& path, RunId id) {
  SQLite::Statement select(database, kSelectRun);
  select.bind(1, id.value);
  if (!select.executeStep()) return error::NoRun(path, id.value);
  StoredRun stored = {.id = id, .run = SelectRun(database, id.value)};
  ASSIGN_OR_RETURN(stored.plan, SelectPlan(database, path, stored.run.plan));
  return stored;
}

StatusOr<RunPage> SelectRunPage(SQLite::Database& database, const std::filesystem::path& path,
                                const PageRequest& request, const std::optional<std::string>& profile_name) {
  ASSIGN_OR_RETURN(const std::int64_t below, FirstIdAbove(request));
  SQLite::Statement select(database, kSelectRunPage);
  select.bind(1, below);
  BindOptional(select, 2, profile_name);
  select.bind(3, request.size + 1);
  RunPage page;
  page.next_token = ReadPage(select, request.size, [&](const SQLite::Statement& row) {
    page.runs.push_back({{row.getColumn(0).getInt64()}, SelectRun(database, row.getColumn(0).getInt64())});
  });
  for (const RunPage::Row& row : page.runs) {
    if (page.plans.contains(row.run.plan.value)) continue;
    ASSIGN_OR_RETURN(page.plans[row.run.plan.value], SelectPlan(database, path, row.run.plan));
  }
  return page;
}

}  // namespace moeplan::db
