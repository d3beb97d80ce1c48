#include "db/migrations.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <iterator>
#include <string>

#include "models/text.h"

namespace moeplan::db {
namespace {

// An operation is named by eleven columns (db/key_columns.h): a collective has the first six, a kernel the last three,
// both the contention and bytes_per_element. They stay as step 1 made them.
constexpr char kOperationColumns[] = R"sql(
  collective TEXT,
  algorithm TEXT,
  group_size INTEGER,
  ranks_per_node INTEGER,
  gather_group_size INTEGER,
  shards INTEGER,
  contention TEXT NOT NULL,
  bytes_per_element INTEGER,
  kernel TEXT,
  model_dim INTEGER,
  hidden_dim INTEGER,
)sql";

std::string RememberSamplesAndProfiles() {
  return StrCat(R"sql(
PRAGMA application_id = 1299137872;

CREATE TABLE calibration (
  id INTEGER PRIMARY KEY,
  calibration TEXT NOT NULL UNIQUE,
  profile_name TEXT NOT NULL,
  nodes INTEGER NOT NULL,
  gpus_per_node INTEGER NOT NULL,
  peak_flops_per_s REAL NOT NULL,
  device_memory_bytes REAL NOT NULL
) STRICT;
CREATE INDEX calibration_by_profile_name ON calibration (profile_name);

CREATE TABLE sample_batch (
  id INTEGER PRIMARY KEY,
  calibration_id INTEGER NOT NULL REFERENCES calibration (id),
  request_id TEXT NOT NULL UNIQUE,
  received_at TEXT NOT NULL
) STRICT;
CREATE INDEX sample_batch_by_calibration ON sample_batch (calibration_id);

CREATE TABLE sample (
  batch_id INTEGER NOT NULL REFERENCES sample_batch (id),
  ordinal INTEGER NOT NULL,)sql",
                kOperationColumns, R"sql(  size REAL NOT NULL,
  times_s TEXT NOT NULL,
  provenance TEXT NOT NULL,
  PRIMARY KEY (batch_id, ordinal),
  CHECK ((collective IS NULL) <> (kernel IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE profile (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  version INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  nodes INTEGER NOT NULL,
  gpus_per_node INTEGER NOT NULL,
  peak_flops_per_s REAL NOT NULL,
  device_memory_bytes REAL NOT NULL,
  UNIQUE (name, version)
) STRICT;

CREATE TABLE cost_model (
  profile_id INTEGER NOT NULL REFERENCES profile (id),
  ordinal INTEGER NOT NULL,)sql",
                kOperationColumns, R"sql(  model TEXT NOT NULL,
  PRIMARY KEY (profile_id, ordinal),
  CHECK ((collective IS NULL) <> (kernel IS NULL))
) STRICT, WITHOUT ROWID;

-- A digest of what is stored under an id (db/seal.h). Beside the rows, because writing it into a row would write the
-- row's long texts again.
CREATE TABLE seal (
  thing TEXT NOT NULL,
  id INTEGER NOT NULL,
  digest INTEGER NOT NULL,
  PRIMARY KEY (thing, id)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 1;
)sql");
}

// profile_version is NULL for a profile that came from a file: SQLite then leaves the foreign key unchecked.
std::string RememberPlansAndRuns() {
  return R"sql(
CREATE TABLE plan (
  id INTEGER PRIMARY KEY,
  profile_name TEXT NOT NULL,
  profile_version INTEGER,
  workload TEXT NOT NULL,
  answer TEXT NOT NULL,
  created_at TEXT NOT NULL,
  FOREIGN KEY (profile_name, profile_version) REFERENCES profile (name, version)
) STRICT;

CREATE TABLE run (
  id INTEGER PRIMARY KEY,
  plan_id INTEGER NOT NULL REFERENCES plan (id),
  schedule TEXT NOT NULL,
  predicted_time_s REAL NOT NULL,
  measured_time_s REAL NOT NULL,
  report TEXT NOT NULL,
  created_at TEXT NOT NULL
) STRICT;
CREATE INDEX run_by_plan ON run (plan_id);

PRAGMA user_version = 2;
)sql";
}

// NULL: not limited. Of the key (db/key_columns.h), though it stands behind all other columns.
std::string RememberCtas() {
  return R"sql(
ALTER TABLE sample ADD COLUMN ctas INTEGER;
ALTER TABLE cost_model ADD COLUMN ctas INTEGER;

PRAGMA user_version = 3;
)sql";
}

// - provenance_text: each distinct provenance once. A sample written before this step has its own in `provenance`,
// where
//   later ones have nothing. No REFERENCES: seals cover the text, and nothing is looked up by it.
// - rejected_sample: samples that were set aside, with the reason; a request's place is in `ordinal`, among those of
//   `sample`. A size that is not a number is NULL.
// - profile_request: which profile a request became.
// - profile.last_batch_id: the last batch that there had been when the version was saved; NULL: not known.
std::string RememberRejectedSamplesAndRequests() {
  return StrCat(R"sql(
CREATE TABLE provenance_text (
  id INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE
) STRICT;
ALTER TABLE sample ADD COLUMN provenance_id INTEGER;

CREATE TABLE rejected_sample (
  id INTEGER PRIMARY KEY,
  batch_id INTEGER NOT NULL REFERENCES sample_batch (id),
  ordinal INTEGER NOT NULL,)sql",
                kOperationColumns, R"sql(  ctas INTEGER,
  size REAL,
  times_s TEXT NOT NULL,
  provenance_id INTEGER NOT NULL,
  reason TEXT NOT NULL,
  UNIQUE (batch_id, ordinal),
  CHECK ((collective IS NULL) <> (kernel IS NULL))
) STRICT;

CREATE TABLE profile_request (
  request_id TEXT PRIMARY KEY,
  profile_id INTEGER NOT NULL REFERENCES profile (id)
) STRICT, WITHOUT ROWID;
CREATE INDEX profile_request_by_profile ON profile_request (profile_id);
CREATE INDEX plan_by_profile ON plan (profile_name, profile_version);
ALTER TABLE profile ADD COLUMN last_batch_id INTEGER;
CREATE INDEX profile_by_last_batch ON profile (last_batch_id);

PRAGMA user_version = 4;
)sql");
}

// revoked_at is NULL while the token is good; the seal leaves it out.
std::string RememberTokens() {
  return R"sql(
CREATE TABLE token (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  role TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  created_at TEXT NOT NULL,
  revoked_at TEXT
) STRICT;
CREATE UNIQUE INDEX token_by_name ON token (name) WHERE revoked_at IS NULL;

PRAGMA user_version = 5;
)sql";
}

// `ended` is 0 or 1; a job's newest event is how far it is.
std::string RememberCalibrationJobs() {
  return R"sql(
CREATE TABLE calibration_job (
  id INTEGER PRIMARY KEY,
  request_id TEXT NOT NULL UNIQUE,
  cluster TEXT NOT NULL,
  request TEXT NOT NULL,
  created_at TEXT NOT NULL
) STRICT;

CREATE TABLE calibration_job_event (
  id INTEGER PRIMARY KEY,
  job_id INTEGER NOT NULL REFERENCES calibration_job (id),
  state TEXT NOT NULL,
  ended INTEGER NOT NULL,
  detail TEXT NOT NULL,
  spent_s REAL NOT NULL,
  samples INTEGER NOT NULL,
  profile_version INTEGER NOT NULL,
  created_at TEXT NOT NULL
) STRICT;
CREATE INDEX calibration_job_event_by_job ON calibration_job_event (job_id);

PRAGMA user_version = 6;
)sql";
}

// - retired_key: samples of a name and a key that came in batches before `before_batch_id` do not count any more.
// - run.request_id: NULL for what no request brought.
std::string RememberRetiredKeysAndReports() {
  return StrCat(R"sql(
CREATE TABLE retired_key (
  id INTEGER PRIMARY KEY,
  profile_name TEXT NOT NULL,
  before_batch_id INTEGER NOT NULL,)sql",
                kOperationColumns, R"sql(  ctas INTEGER,
  CHECK ((collective IS NULL) <> (kernel IS NULL))
) STRICT;
CREATE INDEX retired_key_by_name ON retired_key (profile_name);

ALTER TABLE run ADD COLUMN request_id TEXT;
CREATE UNIQUE INDEX run_by_request ON run (request_id);

PRAGMA user_version = 7;
)sql");
}

// withdrawal: each time samples were taken out of the fits of a name (Store::WithdrawSamples), and by what they were
// chosen. The number of the newest tells whoever remembers batches that they are not as they were.
std::string RememberWithdrawals() {
  return R"sql(
CREATE TABLE withdrawal (
  id INTEGER PRIMARY KEY,
  profile_name TEXT NOT NULL,
  selector TEXT NOT NULL,
  samples INTEGER NOT NULL,
  created_at TEXT NOT NULL
) STRICT;

PRAGMA user_version = 8;
)sql";
}

// agent_name: whose the name of an agent is; the newest row of a name counts.
std::string RememberAgentNames() {
  return R"sql(
CREATE TABLE agent_name (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  caller TEXT NOT NULL,
  bound_at TEXT NOT NULL
) STRICT;
CREATE INDEX agent_name_by_name ON agent_name (name);

PRAGMA user_version = 9;
)sql";
}

// The rates of a cluster's links are NULL where they are not known, as in all rows that were sealed before.
std::string RememberLinkRates() {
  return R"sql(
ALTER TABLE calibration ADD COLUMN node_link_bytes_per_s REAL;
ALTER TABLE calibration ADD COLUMN network_bytes_per_s REAL;
ALTER TABLE profile ADD COLUMN node_link_bytes_per_s REAL;
ALTER TABLE profile ADD COLUMN network_bytes_per_s REAL;

PRAGMA user_version = 10;
)sql";
}

// Step i leads from version i to i + 1.
constexpr std::string (*kSteps[])() = {RememberSamplesAndProfiles,
                                       RememberPlansAndRuns,
                                       RememberCtas,
                                       RememberRejectedSamplesAndRequests,
                                       RememberTokens,
                                       RememberCalibrationJobs,
                                       RememberRetiredKeysAndReports,
                                       RememberWithdrawals,
                                       RememberAgentNames,
                                       RememberLinkRates};
static_assert(std::size(kSteps) == kSchemaVersion);

}  // namespace

int SchemaVersion(SQLite::Database& database) { return database.execAndGet("PRAGMA user_version").getInt(); }

void Migrate(SQLite::Database& database, int version) {
  while (SchemaVersion(database) < version) {
    SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
    // Asked again under the lock: another process may have taken the step meanwhile.
    const int found = SchemaVersion(database);
    if (found < version) database.exec(kSteps[found]());
    transaction.commit();
  }
}

}  // namespace moeplan::db
