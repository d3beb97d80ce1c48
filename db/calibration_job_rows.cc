#include "db/calibration_job_rows.h"

#include <optional>

#include "db/errors.h"
#include "db/page.h"
#include "db/seal.h"
#include "models/text.h"

namespace moeplan::db {
namespace {

constexpr char kInsertJob[] =
    "INSERT INTO calibration_job (request_id, cluster, request, created_at) VALUES (?, ?, ?, ?)";
constexpr char kInsertEvent[] = R"sql(
INSERT INTO calibration_job_event (job_id, state, ended, detail, spent_s, samples, profile_version, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?))sql";
constexpr char kSelectJob[] = "SELECT id, request_id, cluster, request, created_at FROM calibration_job WHERE id = ?";
constexpr char kSelectJobOfRequest[] = "SELECT id FROM calibration_job WHERE request_id = ?";
constexpr char kSelectNewestEvent[] = "SELECT max(id) FROM calibration_job_event WHERE job_id = ?";
constexpr char kSelectEvent[] = R"sql(
SELECT job_id, state, ended, detail, spent_s, samples, profile_version, created_at
FROM calibration_job_event WHERE id = ?)sql";
constexpr char kSelectJobPage[] = R"sql(
SELECT id FROM calibration_job WHERE id < ?1 AND (?2 = '' OR cluster = ?2) ORDER BY id DESC LIMIT ?3)sql";
constexpr char kSelectUnended[] = R"sql(
SELECT id FROM calibration_job
WHERE NOT EXISTS (SELECT 1 FROM calibration_job_event WHERE job_id = calibration_job.id AND ended = 1)
ORDER BY id)sql";

constexpr SealedThing kJob = {.name = "calibration_job", .head = kSelectJob};
constexpr SealedThing kEvent = {.name = "calibration_job_event", .head = kSelectEvent};

std::optional<std::int64_t> SelectJobOfRequest(SQLite::Database& database, const std::string& request_id) {
  SQLite::Statement select(database, kSelectJobOfRequest);
  select.bind(1, request_id);
  if (!select.executeStep()) return std::nullopt;
  return select.getColumn(0).getInt64();
}

bool HasJob(SQLite::Database& database, std::int64_t id) {
  SQLite::Statement select(database, kSelectJob);
  select.bind(1, id);
  return select.executeStep();
}

CalibrationEvent SelectNewestEvent(SQLite::Database& database, std::int64_t job) {
  SQLite::Statement newest(database, kSelectNewestEvent);
  newest.bind(1, job);
  if (!newest.executeStep() || newest.getColumn(0).isNull()) return {};
  const std::int64_t id = newest.getColumn(0).getInt64();
  CheckSeal(database, kEvent, id);
  SQLite::Statement select(database, kSelectEvent);
  select.bind(1, id);
  select.executeStep();
  return {.state = select.getColumn(1).getString(),
          .ended = select.getColumn(2).getInt() != 0,
          .detail = select.getColumn(3).getString(),
          .spent_s = select.getColumn(4).getDouble(),
          .samples = select.getColumn(5).getInt(),
          .profile_version = select.getColumn(6).getInt()};
}

CalibrationJob SelectJob(SQLite::Database& database, std::int64_t id) {
  CheckSeal(database, kJob, id);
  SQLite::Statement select(database, kSelectJob);
  select.bind(1, id);
  select.executeStep();
  return {.id = id,
          .request_id = select.getColumn(1).getString(),
          .cluster = select.getColumn(2).getString(),
          .request = select.getColumn(3).getString(),
          .created_at = select.getColumn(4).getString(),
          .newest = SelectNewestEvent(database, id)};
}

}  // namespace

StatusOr<CalibrationJob> InsertCalibrationJob(SQLite::Database& database, const CalibrationJob& job,
                                              const std::string& created_at) {
  if (const auto id = SelectJobOfRequest(database, job.request_id)) {
    CalibrationJob stored = SelectJob(database, *id);
    if (stored.cluster != job.cluster || stored.request != job.request) {
      return error::CalibrationReused(job.request_id);
    }
    return stored;
  }
  SQLite::Statement insert(database, kInsertJob);
  insert.bind(1, job.request_id);
  insert.bind(2, job.cluster);
  insert.bind(3, job.request);
  insert.bind(4, created_at);
  insert.exec();
  const std::int64_t id = database.getLastInsertRowid();
  Seal(database, kJob, id);
  return SelectJob(database, id);
}

Status InsertCalibrationEvent(SQLite::Database& database, const std::filesystem::path& path, std::int64_t job,
                              const CalibrationEvent& event, const std::string& created_at) {
  if (!HasJob(database, job)) return error::NoCalibration(path, job);
  SQLite::Statement insert(database, kInsertEvent);
  insert.bind(1, job);
  insert.bind(2, event.state);
  insert.bind(3, event.ended ? 1 : 0);
  insert.bind(4, event.detail);
  insert.bind(5, event.spent_s);
  insert.bind(6, event.samples);
  insert.bind(7, event.profile_version);
  insert.bind(8, created_at);
  insert.exec();
  Seal(database, kEvent, database.getLastInsertRowid());
  return OkStatus();
}

StatusOr<CalibrationJob> SelectCalibrationJob(SQLite::Database& database, const std::filesystem::path& path,
                                              std::int64_t id) {
  if (!HasJob(database, id)) return error::NoCalibration(path, id);
  return SelectJob(database, id);
}

StatusOr<CalibrationJobPage> SelectCalibrationJobs(SQLite::Database& database, const PageRequest& request,
                                                   const std::string& cluster) {
  ASSIGN_OR_RETURN(const std::int64_t below, FirstIdAbove(request));
  SQLite::Statement select(database, kSelectJobPage);
  select.bind(1, below);
  select.bind(2, cluster);
  select.bind(3, request.size + 1);  // One more tells whether another page follows.
  CalibrationJobPage page;
  page.next_token = ReadPage(select, request.size, [&](SQLite::Statement& row) {
    page.jobs.push_back(SelectJob(database, row.getColumn(0).getInt64()));
  });
  return page;
}

StatusOr<std::vector<CalibrationJob>> SelectUnendedCalibrationJobs(SQLite::Database& database) {
  SQLite::Statement select(database, kSelectUnended);
  std::vector<CalibrationJob> jobs;
  while (select.executeStep()) jobs.push_back(SelectJob(database, select.getColumn(0).getInt64()));
  return jobs;
}

}  // namespace moeplan::db
