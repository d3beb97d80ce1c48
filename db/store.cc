#include "db/store.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <cmath>
#include <mutex>
#include <utility>

#include "db/agent_name_rows.h"
#include "db/backup.h"
#include "db/calibration_job_rows.h"
#include "db/connection.h"
#include "db/errors.h"
#include "db/guarded.h"
#include "db/overview_rows.h"
#include "db/plan_rows.h"
#include "db/profile_rows.h"
#include "db/prune_rows.h"
#include "db/rejected_rows.h"
#include "db/retired_rows.h"
#include "db/sample_rows.h"
#include "db/stored_sample_rows.h"
#include "db/token_rows.h"
#include "db/value_json.h"
#include "db/withdrawn_rows.h"
#include "models/check.h"
#include "models/text.h"
#include "models/time_text.h"

namespace moeplan {

namespace fs = std::filesystem;

namespace {

// Of those that count.
Status ValidateSamplesOf(const SampleBatch& batch) {
  RETURN_IF_ERROR(ValidateCluster(batch.samples.cluster, "cluster"));
  if (batch.samples.samples.empty()) return db::error::NothingGiven("samples");
  auto rejection = batch.rejected.begin();
  for (int i = 0; i < std::ssize(batch.samples.samples); ++i) {
    if (rejection != batch.rejected.end() && rejection->sample == i) {
      ++rejection;
    } else {
      RETURN_IF_ERROR(ValidateSample(batch.samples.samples[static_cast<size_t>(i)], StrCat("samples[", i, "]")));
    }
  }
  MOEPLAN_CHECK(rejection == batch.rejected.end());  // By rising place, each in the batch.
  return OkStatus();
}

// Throws what ProvenanceText throws.
Status CheckTexts(const SampleSet& samples) {
  const Provenance* last = nullptr;
  for (const Sample& sample : samples.samples) {
    if (last == nullptr || sample.provenance != *last) db::ProvenanceText(sample.provenance);
    last = &sample.provenance;
  }
  return OkStatus();
}

// So that nothing is left to refuse once rows are written.
Status ValidateBatch(const fs::path& path, const SampleBatch& batch) {
  if (batch.request_id.empty()) return db::error::NothingGiven("requestId");
  if (batch.samples.name.empty()) return db::error::NothingGiven("name");
  RETURN_IF_ERROR(ValidateSamplesOf(batch));
  return db::Guarded(path, [&] { return CheckTexts(batch.samples); });
}

Status ValidateTime(std::string_view field, double time_s) {
  return std::isfinite(time_s) && time_s >= 0 ? OkStatus() : db::error::BadTime(field, time_s);
}

}  // namespace

class Store::Impl {
 public:
  Impl(fs::path path, StoreOptions options, db::Readable readable, bool read_only)
      : path_(std::move(path)), options_(std::move(options)), readable_(std::move(readable)), read_only_(read_only) {}

  const fs::path& path() const { return path_; }

  // `operation(database, created_at)` in a transaction that commits when it answers OK and is undone when not.
  template <typename Operation>
  auto Write(const Operation& operation) -> decltype(operation(std::declval<SQLite::Database&>(), std::string())) {
    return Transact(operation, /*commits=*/true);
  }

  // Likewise, but undone in any case.
  template <typename Operation>
  auto Rehearse(const Operation& operation) -> decltype(operation(std::declval<SQLite::Database&>(), std::string())) {
    return Transact(operation, /*commits=*/false);
  }
  // `operation(database)` outside any transaction.
  template <typename Operation>
  auto Alone(const Operation& operation) -> decltype(operation(std::declval<SQLite::Database&>())) {
    const std::scoped_lock lock(mutex_);
    return db::Guarded(path_, [&] { return operation(database()); });
  }

  // Under the lock alone.
  db::KnownBatches& known_batches() { return known_batches_; }

  bool read_only() const { return read_only_; }
  std::string TimeBefore(std::chrono::seconds age) const { return Rfc3339(options_.now() - age); }

  // `operation(database)` on one snapshot.
  template <typename Operation>
  auto Read(const Operation& operation) -> decltype(operation(std::declval<SQLite::Database&>())) {
    const std::scoped_lock lock(mutex_);
    return db::Guarded(path_, [&]() -> decltype(operation(database())) {
      RETURN_IF_ERROR(CopyAnew());
      SQLite::Transaction snapshot(database());
      return operation(database());
    });
  }

 private:
  SQLite::Database& database() { return readable_.database; }

  // A copy is made again when the file is another than the one that was copied. Under the lock.
  Status CopyAnew() {
    if (!readable_.copied || db::StateOf(path_) == *readable_.copied) return OkStatus();
    ASSIGN_OR_RETURN(readable_, db::OpenForReading(path_, options_.busy_timeout));
    known_batches_ = {};
    return OkStatus();
  }

  template <typename Operation>
  auto Transact(const Operation& operation, bool commits)
      -> decltype(operation(std::declval<SQLite::Database&>(), std::string())) {
    const std::scoped_lock lock(mutex_);
    if (read_only_) return db::error::OpenedForReading(path_);
    return db::Guarded(path_, [&]() -> decltype(operation(database(), std::string())) {
      SQLite::Transaction transaction(database(), SQLite::TransactionBehavior::IMMEDIATE);
      auto answer = operation(database(), Rfc3339(options_.now()));
      if (answer.ok() && commits) transaction.commit();
      return answer;
    });
  }

  const fs::path path_;
  const StoreOptions options_;
  std::mutex mutex_;
  db::Readable readable_;           // Guarded by mutex_, as is the next.
  db::KnownBatches known_batches_;  // Of `readable_`.
  const bool read_only_;
};

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

StatusOr<Store> Store::Open(const fs::path& path, StoreOptions options) {
  ASSIGN_OR_RETURN(SQLite::Database database,
                   db::Guarded(path, [&] { return db::OpenForWriting(path, options.busy_timeout); }));
  return Store(std::make_unique<Impl>(path, std::move(options),
                                      db::Readable{.database = std::move(database), .copied = {}},
                                      /*read_only=*/false));
}

StatusOr<Store> Store::OpenReadOnly(const fs::path& path, StoreOptions options) {
  ASSIGN_OR_RETURN(db::Readable readable,
                   db::Guarded(path, [&] { return db::OpenForReading(path, options.busy_timeout); }));
  return Store(std::make_unique<Impl>(path, std::move(options), std::move(readable), /*read_only=*/true));
}

StatusOr<AppendOutcome> Store::AppendSamples(std::span<const SampleBatch> group) {
  for (const SampleBatch& batch : group)
    RETURN_IF_ERROR(ValidateBatch(impl_->path(), batch).Within("request '" + batch.request_id + "'"));
  return impl_->Write([&](SQLite::Database& database, const std::string& received_at) -> StatusOr<AppendOutcome> {
    AppendOutcome outcome;
    for (const SampleBatch& batch : group) {
      ASSIGN_OR_RETURN(const BatchOutcome appended, db::InsertBatch(database, batch, received_at));
      ++(appended.repeated ? outcome.repeated : outcome.stored);
    }
    return outcome;
  });
}

StatusOr<std::vector<StatusOr<BatchOutcome>>> Store::AppendEach(std::span<const SampleBatch> group) {
  const auto append = [this](SQLite::Database& database, const SampleBatch& batch,
                             const std::string& received_at) -> StatusOr<BatchOutcome> {
    RETURN_IF_ERROR(ValidateBatch(impl_->path(), batch));
    RETURN_IF_ERROR(db::CheckClusterOfName(database, batch.samples));
    return db::InsertBatch(database, batch, received_at);
  };
  using Outcomes = std::vector<StatusOr<BatchOutcome>>;
  return impl_->Write([&](SQLite::Database& database, const std::string& received_at) -> StatusOr<Outcomes> {
    Outcomes outcomes;
    for (const SampleBatch& batch : group) outcomes.push_back(append(database, batch, received_at));
    return outcomes;
  });
}

StatusOr<std::vector<Calibration>> Store::SamplesOf(const SampleFilter& filter) const {
  return impl_->Read(
      [&](SQLite::Database& database) { return db::SelectCalibrations(database, impl_->path(), filter); });
}

StatusOr<SamplePage> Store::ListSamples(const PageRequest& page, const std::string& profile_name,
                                        const std::optional<CostKey>& key) const {
  return impl_->Read([&](SQLite::Database& database) {
    return db::SelectSamplePage(database, impl_->path(), page, profile_name, key);
  });
}

StatusOr<KeySamples> Store::SamplesOfKey(const std::string& profile_name, const CostKey& key,
                                         std::optional<int> version, const ChoosePlaces& choose) const {
  return impl_->Read([&](SQLite::Database& database) -> StatusOr<KeySamples> {
    impl_->known_batches().ForgetBefore(db::SelectLatestWithdrawal(database));
    return db::SelectSamplesOfKey(database, profile_name, key, version, choose, impl_->known_batches());
  });
}

Status Store::RetireSamples(const std::string& profile_name, std::span<const CostKey> keys,
                            const std::string& calibration) {
  return impl_->Write([&](SQLite::Database& database, const std::string& /*created_at*/) {
    return db::RetireKeys(database, impl_->path(), profile_name, keys, calibration);
  });
}

StatusOr<WithdrawOutcome> Store::WithdrawSamples(const WithdrawRequest& request, const FitSamples& fit) {
  if (request.profile_name.empty()) return db::error::NothingGiven("profileName");
  const int selectors = request.request_id.has_value() + request.agent.has_value() + request.since.has_value();
  if (selectors != 1) return db::error::NotOneSelector(selectors);
  const auto withdraw = [&](SQLite::Database& database, const std::string& now) -> StatusOr<WithdrawOutcome> {
    ASSIGN_OR_RETURN(WithdrawOutcome outcome, db::MoveWithdrawn(database, impl_->path(), request, now));
    if (outcome.samples == 0) return outcome;
    const StatusOr<std::vector<Calibration>> left =
        db::SelectCalibrations(database, impl_->path(), {.profile_name = request.profile_name});
    if (!left.ok() && left.status().code() == StatusCode::kNotFound) return outcome;  // Nothing is left to fit.
    RETURN_IF_ERROR(left.status());
    StatusOr<Profile> fitted = fit(*left);
    if (!fitted.ok() && fitted.status().code() == StatusCode::kInfeasible) return outcome;  // Likewise.
    ASSIGN_OR_RETURN(const Profile profile, std::move(fitted));
    RETURN_IF_ERROR(ValidateProfile(profile));
    if (!request.dry_run) outcome.version = db::InsertProfile(database, profile, now);
    return outcome;
  };
  return request.dry_run ? impl_->Rehearse(withdraw) : impl_->Write(withdraw);
}

StatusOr<std::int64_t> Store::LatestWithdrawal() const {
  return impl_->Read(
      [](SQLite::Database& database) -> StatusOr<std::int64_t> { return db::SelectLatestWithdrawal(database); });
}

StatusOr<bool> Store::HasBatch(const std::string& request_id) const {
  return impl_->Read([&](SQLite::Database& database) -> StatusOr<bool> { return db::HasBatch(database, request_id); });
}

StatusOr<RejectedPage> Store::ListRejectedSamples(const PageRequest& page,
                                                  const std::optional<std::string>& profile_name,
                                                  const std::optional<CostKey>& key) const {
  return impl_->Read(
      [&](SQLite::Database& database) { return db::SelectRejectedPage(database, page, profile_name, key); });
}

StatusOr<int> Store::CountRejectedSamples(const std::string& profile_name, const CostKey& key) const {
  return impl_->Read(
      [&](SQLite::Database& database) -> StatusOr<int> { return db::CountRejected(database, profile_name, key); });
}

StatusOr<ProfileVersion> Store::SaveProfile(const Profile& profile, const std::string& request_id,
                                            std::optional<std::int64_t> withdrawal) {
  if (profile.name.empty()) return db::error::NothingGiven("name");
  RETURN_IF_ERROR(ValidateProfile(profile));
  return impl_->Write([&](SQLite::Database& database, const std::string& created_at) -> StatusOr<ProfileVersion> {
    if (withdrawal && *withdrawal != db::SelectLatestWithdrawal(database)) return db::error::WithdrawnMeanwhile();
    const ProfileVersion version = db::InsertProfile(database, profile, created_at);
    if (!request_id.empty()) RETURN_IF_ERROR(db::InsertRequest(database, impl_->path(), request_id, version));
    return version;
  });
}

Status Store::RememberRequest(const std::string& request_id, const ProfileVersion& version) {
  return impl_->Write([&](SQLite::Database& database, const std::string& /*created_at*/) {
    return db::InsertRequest(database, impl_->path(), request_id, version);
  });
}

StatusOr<std::optional<ProfileVersion>> Store::VersionOfRequest(const std::string& request_id) const {
  return impl_->Read([&](SQLite::Database& database) -> StatusOr<std::optional<ProfileVersion>> {
    return db::SelectVersionOfRequest(database, request_id);
  });
}

StatusOr<ProfilePage> Store::ListProfiles(const PageRequest& page, const ProfileFilter& filter) const {
  return impl_->Read([&](SQLite::Database& database) { return db::SelectProfilePage(database, page, filter); });
}

StatusOr<OverviewPage> Store::ListOverviews(const PageRequest& page) const {
  return impl_->Read([&](SQLite::Database& database) { return db::SelectOverviewPage(database, page); });
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

StatusOr<RunPage> Store::ListRuns(const PageRequest& page, const std::optional<std::string>& profile_name) const {
  return impl_->Read(
      [&](SQLite::Database& database) { return db::SelectRunPage(database, impl_->path(), page, profile_name); });
}

StatusOr<StoredRun> Store::LoadRun(RunId id) const {
  return impl_->Read([&](SQLite::Database& database) { return db::SelectStoredRun(database, impl_->path(), id); });
}

Status Store::AddToken(const TokenRecord& token) {
  if (token.name.empty()) return db::error::NothingGiven("name");
  return impl_->Write([&](SQLite::Database& database, const std::string& created_at) {
    return db::InsertToken(database, token, created_at);
  });
}

StatusOr<std::vector<TokenRecord>> Store::Tokens() const {
  return impl_->Read([](SQLite::Database& database) { return db::SelectTokens(database); });
}

Status Store::RevokeToken(const std::string& name) {
  return impl_->Write([&](SQLite::Database& database, const std::string& revoked_at) {
    return db::UpdateTokenRevoked(database, impl_->path(), name, revoked_at);
  });
}

Status Store::BindAgentName(const AgentNameRecord& record) {
  if (record.name.empty()) return db::error::NothingGiven("name");
  return impl_->Write([&](SQLite::Database& database, const std::string& bound_at) {
    db::InsertAgentName(database, record, bound_at);
    return OkStatus();
  });
}

StatusOr<std::vector<AgentNameRecord>> Store::AgentNames() const {
  return impl_->Read([](SQLite::Database& database) -> StatusOr<std::vector<AgentNameRecord>> {
    return db::SelectAgentNames(database);
  });
}

StatusOr<std::int64_t> Store::LatestProfile() const {
  return impl_->Read(
      [](SQLite::Database& database) -> StatusOr<std::int64_t> { return db::SelectLatestProfile(database); });
}

StatusOr<PruneOutcome> Store::PruneProfiles(const PruneRequest& request) {
  if (request.keep < 1) return db::error::BadKeep(request.keep);
  const auto prune = [&](SQLite::Database& database, const std::string& /*created_at*/) -> StatusOr<PruneOutcome> {
    std::optional<std::string> plans_before;
    if (request.plans_older_than) plans_before = impl_->TimeBefore(*request.plans_older_than);
    return db::Prune(database, request, plans_before);
  };
  return request.dry_run ? impl_->Rehearse(prune) : impl_->Write(prune);
}

StatusOr<std::int64_t> Store::FreeSpace() {
  if (impl_->read_only()) return db::error::OpenedForReading(impl_->path());
  return impl_->Alone([](SQLite::Database& database) -> StatusOr<std::int64_t> { return db::FreeSpace(database); });
}

StatusOr<std::int64_t> Store::BackUp(const fs::path& to) const {
  return impl_->Alone([&](SQLite::Database& database) { return db::BackUp(database, to); });
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
