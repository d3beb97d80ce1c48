#include "db/store.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <cmath>
#include <cstdio>
#include <mutex>
#include <utility>

#include "db/calibration_job_rows.h"
#include "db/connection.h"
#include "db/errors.h"
#include "db/guarded.h"
#include "db/plan_rows.h"
#include "db/profile_rows.h"
#include "db/sample_rows.h"

namespace moeplan {

namespace fs = std::filesystem;

namespace {

std::string Rfc3339(std::chrono::system_clock::time_point time) {
  const auto second = std::chrono::floor<std::chrono::seconds>(time);
  const auto midnight = std::chrono::floor<std::chrono::days>(second);
  const std::chrono::year_month_day date(midnight);
  const std::chrono::hh_mm_ss clock(second - midnight);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02dZ", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()));
  return text;
}

Status ValidateBatch(const SampleBatch& batch) {
  if (batch.request_id.empty()) return db::error::NothingGiven("requestId");
  if (batch.samples.name.empty()) return db::error::NothingGiven("name");
  return ValidateSamples(batch.samples);
}

Status ValidateTime(std::string_view field, double time_s) {
  return std::isfinite(time_s) && time_s >= 0 ? OkStatus() : db::error::BadTime(field, time_s);
}

}  // namespace

class Store::Impl {
 public:
  Impl(fs::path path, StoreOptions options, SQLite::Database database, bool read_only)
      : path_(std::move(path)), options_(std::move(options)), database_(std::move(database)), read_only_(read_only) {}

  const fs::path& path() const { return path_; }

  // `operation(database, created_at)` in a transaction that commits when it answers OK and is undone when not.
  template <typename Operation>
  auto Write(const Operation& operation) -> decltype(operation(std::declval<SQLite::Database&>(), std::string())) {
    const std::scoped_lock lock(mutex_);
    if (read_only_) return db::error::OpenedForReading(path_);
    return db::Guarded(path_, [&]() -> decltype(operation(database_, std::string())) {
      SQLite::Transaction transaction(database_, SQLite::TransactionBehavior::IMMEDIATE);
      auto answer = operation(database_, Rfc3339(options_.now()));
      if (answer.ok()) transaction.commit();
      return answer;
    });
  }

  // `operation(database)` on one snapshot.
  template <typename Operation>
  auto Read(const Operation& operation) -> decltype(operation(std::declval<SQLite::Database&>())) {
    const std::scoped_lock lock(mutex_);
    return db::Guarded(path_, [&] {
      SQLite::Transaction snapshot(database_);
      return operation(database_);
    });
  }

 private:
  const fs::path path_;
  const StoreOptions options_;
  std::mutex mutex_;
  SQLite::Database database_;  // Guarded by mutex_.
  const bool read_only_;
};

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

StatusOr<Store> Store::Open(const fs::path& path, StoreOptions options) {
  ASSIGN_OR_RETURN(SQLite::Database database,
                   db::Guarded(path, [&] { return db::OpenForWriting(path, options.busy_timeout); }));
  return Store(std::make_unique<Impl>(path, std::move(options), std::move(database), /*read_only=*/false));
}

StatusOr<Store> Store::OpenReadOnly(const fs::path& path, StoreOptions options) {
  ASSIGN_OR_RETURN(SQLite::Database database,
                   db::Guarded(path, [&] { return db::OpenForReading(path, options.busy_timeout); }));
  return Store(std::make_unique<Impl>(path, std::move(options), std::move(database), /*read_only=*/true));
}

StatusOr<AppendOutcome> Store::AppendSamples(std::span<const SampleBatch> group) {
  for (const SampleBatch& batch : group)
    RETURN_IF_ERROR(ValidateBatch(batch).Within("request '" + batch.request_id + "'"));
  return impl_->Write([&](SQLite::Database& database, const std::string& received_at) -> StatusOr<AppendOutcome> {
    AppendOutcome outcome;
    for (const SampleBatch& batch : group) {
      ASSIGN_OR_RETURN(const db::Appended appended, db::InsertBatch(database, batch, received_at));
      ++(appended == db::Appended::kStored ? outcome.stored : outcome.repeated);
    }
    return outcome;
  });
}

StatusOr<std::vector<Calibration>> Store::SamplesOf(const SampleFilter& filter) const {
  return impl_->Read(
      [&](SQLite::Database& database) { return db::SelectCalibrations(database, impl_->path(), filter); });
}

StatusOr<ProfileVersion> Store::SaveProfile(const Profile& profile) {
  if (profile.name.empty()) return db::error::NothingGiven("name");
  RETURN_IF_ERROR(ValidateProfile(profile));
  return impl_->Write([&](SQLite::Database& database, const std::string& created_at) -> StatusOr<ProfileVersion> {
    return db::InsertProfile(database, profile, created_at);
  });
}

StatusOr<ProfilePage> Store::ListProfiles(const PageRequest& page) const {
  return impl_->Read([&](SQLite::Database& database) { return db::SelectProfilePage(database, page); });
}

StatusOr<Profile> Store::LoadProfile(const ProfileSelection& selection) const {
  return impl_->Read([&](SQLite::Database& database) { return db::SelectProfile(database, impl_->path(), selection); });
}

StatusOr<PlanId> Store::SavePlan(const PlanRecord& plan) {
  if (plan.profile_version < 0) return db::error::BadProfileVersion(plan.profile_version, /*lowest=*/0);
  return impl_->Write([&](SQLite::Database& database, const std::string& created_at) {
    return db::InsertPlan(database, impl_->path(), plan, created_at);
  });
}

StatusOr<PlanRecord> Store::LoadPlan(PlanId id) const {
  return impl_->Read([&](SQLite::Database& database) { return db::SelectPlan(database, impl_->path(), id); });
}

StatusOr<RunId> Store::SaveRun(const RunRecord& run) {
  RETURN_IF_ERROR(ValidateTime("predictedTimeS", run.predicted_time_s));
  RETURN_IF_ERROR(ValidateTime("measuredTimeS", run.measured_time_s));
  return impl_->Write([&](SQLite::Database& database, const std::string& created_at) {
    return db::InsertRun(database, impl_->path(), run, created_at);
  });
}

StatusOr<std::vector<RunRecord>> Store::RunsOf(PlanId plan) const {
  return impl_->Read([&](SQLite::Database& database) { return db::SelectRuns(database, impl_->path(), plan); });
}

StatusOr<CalibrationJob> Store::SaveCalibrationJob(const CalibrationJob& job) {
  if (job.request_id.empty()) return db::error::NothingGiven("requestId");
  return impl_->Write([&](SQLite::Database& database, const std::string& created_at) {
    return db::InsertCalibrationJob(database, job, created_at);
  });
}

Status Store::SaveCalibrationEvent(std::int64_t calibration, const CalibrationEvent& event) {
  if (event.state.empty()) return db::error::NothingGiven("state");
  RETURN_IF_ERROR(ValidateTime("spentS", event.spent_s));
  return impl_->Write([&](SQLite::Database& database, const std::string& created_at) {
    return db::InsertCalibrationEvent(database, impl_->path(), calibration, event, created_at);
  });
}

StatusOr<CalibrationJob> Store::LoadCalibrationJob(std::int64_t calibration) const {
  return impl_->Read(
      [&](SQLite::Database& database) { return db::SelectCalibrationJob(database, impl_->path(), calibration); });
}

StatusOr<CalibrationJobPage> Store::ListCalibrationJobs(const PageRequest& page, const std::string& cluster) const {
  return impl_->Read([&](SQLite::Database& database) { return db::SelectCalibrationJobs(database, page, cluster); });
}

StatusOr<std::vector<CalibrationJob>> Store::UnendedCalibrationJobs() const {
  return impl_->Read([&](SQLite::Database& database) { return db::SelectUnendedCalibrationJobs(database); });
}

}  // namespace moeplan
