// What moeplan remembers: samples, fitted profiles, plans, measured runs and the calibrations that were asked for, in
// one SQLite file.
//
// Durability: a verb that answers OK has been committed and synced; neither kill -9 nor a power cut takes it back. A
// verb that answers an error has changed nothing. Nothing is ever overwritten: a refit is a new version, and old
// versions stay for the plans that refer to them. Nothing is removed but by PruneProfiles; WithdrawSamples moves.
//
// Threads: a Store locks internally, so any thread may call any verb; verbs of one Store run one after the other.
// Processes: several may have the same file open; a writer waits up to StoreOptions::busy_timeout for another one.
// A Store must not be carried across fork().
//
// Errors: kInvalidInput the caller's value is wrong; kNotFound no such file, profile, plan; kDataLoss the file is
// damaged, not a database, or of a newer moeplan; kPermissionDenied the file or its folder may not be written (or
// read); kUnavailable locked by another process, disk full or failing. Every message names the file.
//
// Numbers read back bit for bit (a zero may lose its sign). What is stored carries a digest, so that a byte that
// flips inside a value is reported as kDataLoss, never answered as another value.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "db/calibration_job.h"
#include "models/cost/profile.h"
#include "models/cost/samples.h"
#include "models/status.h"

namespace moeplan {

struct StoreOptions {
  // Gives created_at. Called while the Store is locked, on the caller's thread.
  std::function<std::chrono::system_clock::time_point()> now = std::chrono::system_clock::now;
  // How long a verb waits for another process before it answers kUnavailable.
  std::chrono::milliseconds busy_timeout{5000};
};

// A sample of a batch that must not count.
struct Rejection {
  int sample = 0;  // Its place in the batch.
  std::string reason;

  friend bool operator==(const Rejection&, const Rejection&) = default;
};

// Samples that arrived together, with the id that makes a repeated request harmless.
struct SampleBatch {
  std::string request_id;   // Unique among all requests; the same id must carry the same samples.
  std::string calibration;  // The measuring session; its batches share name and cluster. Empty: `request_id`.
  SampleSet samples;
  std::vector<Rejection> rejected;  // By rising place. Kept apart, whatever their sizes and times are.

  friend bool operator==(const SampleBatch&, const SampleBatch&) = default;
};

// What became of one batch; the same when it is repeated.
struct BatchOutcome {
  bool repeated = false;  // The store had it already.
  int stored_samples = 0;
  int rejected_samples = 0;

  friend bool operator==(const BatchOutcome&, const BatchOutcome&) = default;
};

struct AppendOutcome {
  int stored = 0;    // Batches new to the store.
  int repeated = 0;  // Batches it already had.

  friend bool operator==(const AppendOutcome&, const AppendOutcome&) = default;
};

// Which samples: those that meet every field that is set.
struct SampleFilter {
  std::optional<std::string> profile_name;
  std::optional<std::string> calibration;
};

// All samples of one measuring session, in the order in which they were appended.
struct Calibration {
  std::string calibration;
  SampleSet samples;

  friend bool operator==(const Calibration&, const Calibration&) = default;
};

struct ProfileVersion {
  std::string name;
  int version = 0;         // From 1 on, one more for each save under this name.
  std::string created_at;  // RFC 3339, UTC, to the second.

  friend bool operator==(const ProfileVersion&, const ProfileVersion&) = default;
};

// Stored samples of one key, first received first.
struct KeySamples {
  struct Times {
    double size = 0;
    std::span<const double> times_s;  // Borrowed from `parts`.
    bool retired = false;
  };
  struct Origin {
    std::string request_id;
    std::string calibration;
    std::string received_at;  // RFC 3339 in UTC.
    Provenance provenance;

    friend auto operator<=>(const Origin&, const Origin&) = default;
  };
  // Those of one batch. Equal parts hold equal times; the same times asked for again are usually an equal part.
  struct Part {
    std::shared_ptr<const void> times;
    bool retired = false;

    friend bool operator==(const Part&, const Part&) = default;
  };
  std::vector<Times> times;     // Of every one.
  std::vector<Part> parts;      // Of all of `times`, in that order.
  std::vector<size_t> places;   // Which of `times` were chosen,
  std::vector<int> origin_of;   // and which of `origins` each of these is of.
  std::vector<Origin> origins;  // Each once.
  int later = 0;                // How many more came after the version.
};

// Which of `times` are wanted with their origins: places, rising. Is given `times` and `parts`; must not call the
// store.
using ChoosePlaces = std::function<std::vector<size_t>(const KeySamples& all)>;

struct PageRequest {
  int size = 100;     // 1 to 1000.
  std::string token;  // Empty: the first page; else next_token of the page before.
};

// Which versions: those that meet every field that is set.
struct ProfileFilter {
  std::optional<std::string> name;
  bool newest = false;  // Of its name. One that is saved again between two pages is missed.
};

struct ProfilePage {
  std::vector<ProfileVersion> profiles;
  std::string next_token;  // Empty: this is the last page.
};

struct SamplePage {
  std::vector<StoredSample> samples;
  std::string next_token;  // Empty: this is the last page.
};

struct RejectedPage {
  std::vector<RejectedSample> samples;
  std::string next_token;  // Empty: this is the last page.
};

// How well a cost was fitted.
struct CostErrors {
  CostKey key;
  double relative_error_p50 = 0;  // Cross-validated; may be infinite, as may the next.
  double relative_error_p95 = 0;

  friend bool operator==(const CostErrors&, const CostErrors&) = default;
};

// The newest version of a name and what there is beside it, in numbers.
struct ProfileOverview {
  ProfileVersion newest;
  int versions = 0;
  Cluster cluster;
  int collectives = 0, kernels = 0;       // Costs.
  int samples = 0, rejected_samples = 0;  // Under the name, whichever versions know them.
  std::string last_sample_at;             // RFC 3339; empty: none is stored.
  std::vector<CostErrors> errors;         // Of the costs that were fitted, in the profile's order.
};

struct OverviewPage {
  std::vector<ProfileOverview> profiles;
  std::string next_token;  // Empty: this is the last page.
};

struct ProfileSelection {
  std::optional<std::string> name;  // Absent: the name that was saved last.
  std::optional<int> version;       // Absent: the newest of that name.
};

struct PlanId {
  std::int64_t value = 0;

  friend bool operator==(const PlanId&, const PlanId&) = default;
};

struct RunId {
  std::int64_t value = 0;

  friend bool operator==(const RunId&, const RunId&) = default;
};

// A plan as it was answered. The texts are the caller's: kept byte for byte, never read.
struct PlanRecord {
  std::string profile_name;
  int profile_version = 0;  // 0: the profile came from a file and is not in the store.
  std::string workload;
  std::string answer;
  std::string created_at;  // The store's; ignored by SavePlan.

  friend bool operator==(const PlanRecord&, const PlanRecord&) = default;
};

// One measured run of a stored plan.
struct RunRecord {
  PlanId plan;
  std::string schedule;
  double predicted_time_s = 0;
  double measured_time_s = 0;
  std::string report;      // Of `run` a RunReport, of `validate` a MeasuredCandidate; kept byte for byte.
  std::string request_id;  // That brought it; may be empty.
  std::string created_at;  // The store's; ignored by SaveRun.

  friend bool operator==(const RunRecord&, const RunRecord&) = default;
};

// A run beside its plan.
struct StoredRun {
  RunId id;
  RunRecord run;
  PlanRecord plan;

  friend bool operator==(const StoredRun&, const StoredRun&) = default;
};

struct RunPage {
  struct Row {
    RunId id;
    RunRecord run;
  };
  std::vector<Row> runs;
  std::map<std::int64_t, PlanRecord> plans;  // Of the runs, each once, by the value of its id.
  std::string next_token;                    // Empty: this is the last page.
};

// What lets somebody call a service. The token itself is not kept.
struct TokenRecord {
  std::string name;        // Whose it is; one that is not revoked has it alone.
  std::string role;        // The caller's, never read.
  std::string sha256;      // Of the token, in hexadecimal.
  std::string expires_at;  // RFC 3339, UTC, to the second; empty: never.
  std::string created_at;  // The store's; ignored by AddToken, as is the next.
  std::string revoked_at;  // Empty: it is not.

  friend bool operator==(const TokenRecord&, const TokenRecord&) = default;
};

// The caller to whom the name of an agent belongs. The text of the caller is the service's, never read here.
struct AgentNameRecord {
  std::string name;
  std::string caller;

  friend bool operator==(const AgentNameRecord&, const AgentNameRecord&) = default;
};

// Which versions PruneProfiles removes.
struct PruneRequest {
  int keep = 1;                             // The newest so many of each name stay. At least 1.
  std::optional<std::string> profile_name;  // Absent: every name.
  // A version that stored plans refer to stays, unless this is set and all of them were stored longer ago: then they go
  // with it, and their runs with them.
  std::optional<std::chrono::seconds> plans_older_than;
  // Also the samples, rejected ones too, that were in the store when the newest removed version of their name was
  // saved. Later fits will not know them; nor are their requests known any more.
  bool samples = false;
  bool dry_run = false;  // Only says what it would remove.
};

// What was removed, or would have been.
struct PruneOutcome {
  std::vector<ProfileVersion> removed;  // The one saved first in front.
  std::vector<ProfileVersion> in_use;   // Those that would have gone, but for the plans that refer to them.
  int plans = 0, runs = 0;
  int samples = 0, rejected_samples = 0;

  friend bool operator==(const PruneOutcome&, const PruneOutcome&) = default;
};

// Which samples of a name WithdrawSamples takes out of its fits: exactly one of the last three is set.
struct WithdrawRequest {
  std::string profile_name;
  std::optional<std::string> request_id;  // Those that this request, or the calibration of this name, brought.
  std::optional<std::string> agent;       // Those whose provenance names this agent.
  std::optional<std::string> since;       // Those received at this moment (RFC 3339, UTC, to the second) or later.
  bool dry_run = false;                   // Only says what it would take out.
};

// Counts what WithdrawSamples took out, or would have taken out.
struct WithdrawOutcome {
  int samples = 0;
  int requests = 0;                       // That had brought them.
  int left = 0;                           // Samples of the name that still count, retired ones too.
  std::optional<ProfileVersion> version;  // What the fit of those left was saved as; absent: none was saved.

  friend bool operator==(const WithdrawOutcome&, const WithdrawOutcome&) = default;
};

// Fits the calibrations of a name; kInfeasible: none of their samples can be fitted. It is called inside a transaction,
// so it must not call the store.
using FitSamples = std::function<StatusOr<Profile>(std::span<const Calibration> calibrations)>;

class Store {
 public:
  // Opens `path` for reading and writing; creates the file (not its folder), for its owner alone (mode 0600), and
  // brings an older one up to date. `path` is the name of a file, also where SQLite would see something else in it.
  // Files up to 64 MiB are checked in full for damage first, by OpenReadOnly too.
  static StatusOr<Store> Open(const std::filesystem::path& path, StoreOptions options = {});

  // Opens `path` for reading and leaves its contents as they are: an absent file is kNotFound and stays absent, and
  // what writes answers kPermissionDenied. Needs no permission to write. A file of an older moeplan, and one that may
  // not be written and that nobody has open, is read from a copy in memory, which is made again when the file changes.
  static StatusOr<Store> OpenReadOnly(const std::filesystem::path& path, StoreOptions options = {});

  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  // Stores a group of batches in one commit: all of them, or none if one is refused. A sync costs milliseconds, a
  // sample microseconds, so hand over as many batches at once as have come in. Keeps every repeat and all provenance;
  // texts of provenance must be UTF-8. A batch that is already there is counted as repeated; a known request_id with
  // another content is kInvalidInput.
  StatusOr<AppendOutcome> AppendSamples(std::span<const SampleBatch> group);

  // Likewise for batches of callers that know nothing of each other: one that is refused, for the reasons above or
  // because its cluster is not that of the samples stored under its name, stays out alone. An answer for each, in
  // order; an error of the whole is one of the file.
  StatusOr<std::vector<StatusOr<BatchOutcome>>> AppendEach(std::span<const SampleBatch> group);

  // The matching calibrations, the one begun first in front; kNotFound when there is none. Without what was rejected,
  // and, but for one calibration that is asked for, without what was retired.
  StatusOr<std::vector<Calibration>> SamplesOf(const SampleFilter& filter) const;

  // Samples stored under a name, of one key or of all, with those retired: first received first, in pages. kNotFound:
  // there is none under the name.
  StatusOr<SamplePage> ListSamples(const PageRequest& page, const std::string& profile_name,
                                   const std::optional<CostKey>& key = {}) const;
  // All of one key, in that order, those chosen with their origins (none given: all); none is no error. With a version
  // that is stored: as they were when it was saved. What was held against its digest by this verb within the last half
  // minute is not again.
  StatusOr<KeySamples> SamplesOfKey(const std::string& profile_name, const CostKey& key,
                                    std::optional<int> version = {}, const ChoosePlaces& choose = {}) const;

  // Has samples under that name, of these keys, count no more if they came before the first of `calibration`: SamplesOf
  // leaves them out, for good. Keys that are retired there already change nothing. kNotFound: no such calibration.
  Status RetireSamples(const std::string& profile_name, std::span<const CostKey> keys,
                       const std::string& calibration);

  // Moves the samples that the request selects to those that were rejected, with the reason "withdrawn", and saves the
  // fit of what is left of the name as its next version, all in one transaction; what is asked for again changes
  // nothing more. A request that brought them stays known, so that repeating it stores nothing. No version is saved
  // when nothing was selected, or nothing is left to fit. An error of `fit` undoes all of it. kNotFound: no samples
  // were ever stored under the name; kInvalidInput: not exactly one selector is set.
  StatusOr<WithdrawOutcome> WithdrawSamples(const WithdrawRequest& request, const FitSamples& fit);
  // Changes whenever samples are withdrawn, by whomever. Cheap.
  StatusOr<std::int64_t> LatestWithdrawal() const;

  // Whether a batch of that request_id is there, be all of it rejected.
  StatusOr<bool> HasBatch(const std::string& request_id) const;

  // What was rejected, last received first, of one name or of all, of one key or of all.
  StatusOr<RejectedPage> ListRejectedSamples(
      const PageRequest& page = {}, const std::optional<std::string>& profile_name = {},
      const std::optional<CostKey>& key = {}) const;

  StatusOr<int> CountRejectedSamples(const std::string& profile_name,
                                     const CostKey& key) const;

  // Stores `profile` as the next version of its name. Its own version and created_at are ignored. With a request_id,
  // new among those of profiles, VersionOfRequest will know the version by it. Where `withdrawal` is given and is no
  // longer LatestWithdrawal, the profile may be a fit of samples that do not count any more, and is refused:
  // kUnavailable.
  StatusOr<ProfileVersion> SaveProfile(const Profile& profile, const std::string& request_id = "",
                                       std::optional<std::int64_t> withdrawal = {});

  // Makes VersionOfRequest know a version that is stored by one more request_id, new among those of profiles.
  Status RememberRequest(const std::string& request_id, const ProfileVersion& version);
  StatusOr<std::optional<ProfileVersion>> VersionOfRequest(const std::string& request_id) const;

  // What is there, last saved first. Profiles saved between two pages do not disturb the pages that follow.
  StatusOr<ProfilePage> ListProfiles(const PageRequest& page = {}, const ProfileFilter& filter = {}) const;

  // The newest version of every name, last saved first. Counts in SQL: no curve and no sample is read.
  StatusOr<OverviewPage> ListOverviews(const PageRequest& page = {}) const;

  // Equal to the profile that was saved, apart from version and created_at.
  StatusOr<Profile> LoadProfile(const ProfileSelection& selection = {}) const;

  // A profile_version above 0 must be in the store.
  StatusOr<PlanId> SavePlan(const PlanRecord& plan);
  StatusOr<PlanRecord> LoadPlan(PlanId id) const;

  // The plan must be in the store; both times finite and not negative. With a request_id that brought a run already,
  // that run stays as it is.
  StatusOr<RunId> SaveRun(const RunRecord& run);
  // The runs of a plan in the order saved; kNotFound when there is no such plan.
  StatusOr<std::vector<RunRecord>> RunsOf(PlanId plan) const;

  // Last saved first, of plans of one profile or of all.
  StatusOr<RunPage> ListRuns(const PageRequest& page = {}, const std::optional<std::string>& profile_name = {}) const;
  StatusOr<StoredRun> LoadRun(RunId id) const;

  // kInvalidInput when one of that name is not revoked.
  Status AddToken(const TokenRecord& token);
  // All that there ever were, the oldest first.
  StatusOr<std::vector<TokenRecord>> Tokens() const;
  // kNotFound when none of that name is not revoked.
  Status RevokeToken(const std::string& name);

  // Keeps that the name is that caller's from now on.
  Status BindAgentName(const AgentNameRecord& record);
  // The last of each name, by name.
  StatusOr<std::vector<AgentNameRecord>> AgentNames() const;

  // Changes whenever a profile is saved, by whomever. Cheap.
  StatusOr<std::int64_t> LatestProfile() const;

  // Removes old versions, all of them or, on an error, none. Their space stays in the file for what comes later.
  StatusOr<PruneOutcome> PruneProfiles(const PruneRequest& request);

  // Gives the file's unused space back (VACUUM): writes all of it anew, which takes as much space again meanwhile and
  // keeps other writers waiting. Returns by how many bytes the file is smaller.
  StatusOr<std::int64_t> FreeSpace();

  // Writes all that is committed at this moment to a new file, as one file without side files; other processes may go
  // on writing. It stands under `to` only once it is complete, checked for damage and synced; a file that is there is
  // kInvalidInput. Returns its bytes.
  StatusOr<std::int64_t> BackUp(const std::filesystem::path& to) const;

  // Keeps that a calibration was asked for: a new one, or, for a known request_id, the stored one. Its id, created_at
  // and newest are ignored. A known request_id with other content is kInvalidInput.
  StatusOr<CalibrationJob> SaveCalibrationJob(const CalibrationJob& job);
  // Keeps how far it is; the calibration must be in the store.
  Status SaveCalibrationEvent(std::int64_t calibration, const CalibrationEvent& event);
  StatusOr<CalibrationJob> LoadCalibrationJob(std::int64_t calibration) const;
  // Last asked for first; of one cluster, or of all when that is empty.
  StatusOr<CalibrationJobPage> ListCalibrationJobs(const PageRequest& page = {}, const std::string& cluster = "") const;
  // Those without an event that ended them, first asked for first.
  StatusOr<std::vector<CalibrationJob>> UnendedCalibrationJobs() const;

 private:
  class Impl;
  explicit Store(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace moeplan
