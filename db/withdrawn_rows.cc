#include "db/withdrawn_rows.h"

#include <utility>
#include <vector>

#include "db/errors.h"
#include "db/rejected_rows.h"
#include "db/sample_columns.h"
#include "db/seal.h"
#include "models/cost/plausible.h"
#include "models/text.h"

namespace moeplan::db {
namespace {

constexpr char kReason[] = "withdrawn";

constexpr char kSelectAnyCalibration[] = "SELECT 1 FROM calibration WHERE profile_name = ? LIMIT 1";
constexpr char kSelectTouchedBatches[] = R"sql(
SELECT sample_batch.id
FROM calibration JOIN sample_batch ON calibration_id = calibration.id
WHERE profile_name = ?1
  AND (?2 IS NULL OR request_id = ?2 OR calibration = ?2)
  AND (?3 IS NULL OR received_at >= ?3)
  AND EXISTS (SELECT 1 FROM sample WHERE batch_id = sample_batch.id)
ORDER BY sample_batch.id)sql";
// The columns that ReadSample reads, from the second on.
constexpr char kSelectTouchedSamples[] = R"sql(
SELECT ordinal, collective, algorithm, group_size, ranks_per_node, gather_group_size, shards, contention,
       bytes_per_element, kernel, model_dim, hidden_dim, size, times_s, provenance, ctas, text
FROM sample LEFT JOIN provenance_text ON provenance_text.id = provenance_id
WHERE batch_id = ? ORDER BY ordinal)sql";
constexpr char kDeleteSample[] = "DELETE FROM sample WHERE batch_id = ? AND ordinal = ?";
constexpr char kCountOfName[] = R"sql(
SELECT count(*) FROM calibration
  JOIN sample_batch ON calibration_id = calibration.id
  JOIN sample ON batch_id = sample_batch.id
WHERE profile_name = ?)sql";
constexpr char kInsertWithdrawal[] =
    "INSERT INTO withdrawal (profile_name, selector, samples, created_at) VALUES (?, ?, ?, ?)";

std::string SelectorOf(const WithdrawRequest& request) {
  if (request.request_id) return "request-id " + *request.request_id;
  if (request.agent) return "agent " + *request.agent;
  return "since " + request.since.value_or("");
}

bool HasCalibration(SQLite::Database& database, const std::string& profile_name) {
  SQLite::Statement select(database, kSelectAnyCalibration);
  select.bind(1, profile_name);
  return select.executeStep();
}

std::vector<std::int64_t> SelectBatchIds(SQLite::Database& database, const WithdrawRequest& request) {
  SQLite::Statement select(database, kSelectTouchedBatches);
  select.bind(1, request.profile_name);
  BindOptional(select, 2, request.request_id);
  BindOptional(select, 3, request.since);
  std::vector<std::int64_t> ids;
  while (select.executeStep()) ids.push_back(select.getColumn(0).getInt64());
  return ids;
}

bool IsOfAgent(const Sample& sample, const std::string& agent) {
  const auto named = sample.provenance.find(kAgentKey);
  return named != sample.provenance.end() && named->second == agent;
}

// Those of the batch that the request selects, with their places in it.
std::vector<PlacedSample> SelectWithdrawn(SQLite::Database& database, std::int64_t batch_id,
                                          const WithdrawRequest& request) {
  SQLite::Statement select(database, kSelectTouchedSamples);
  select.bind(1, batch_id);
  Provenances provenances;
  std::vector<PlacedSample> withdrawn;
  while (select.executeStep()) {
    Sample sample = ReadSample(select, 1, provenances);
    if (request.agent && !IsOfAgent(sample, *request.agent)) continue;
    withdrawn.push_back({.place = select.getColumn(0).getInt(), .sample = std::move(sample)});
  }
  return withdrawn;
}

// Checks both seals before rows move, so that a byte that flipped is not sealed anew.
void Move(SQLite::Database& database, std::int64_t batch_id, const std::vector<PlacedSample>& withdrawn) {
  CheckSeal(database, kSealedBatch, batch_id);
  (void)SelectRejected(database, batch_id);
  SQLite::Statement remove(database, kDeleteSample);
  for (const PlacedSample& one : withdrawn) {
    remove.reset();
    remove.bind(1, batch_id);
    remove.bind(2, one.place);
    remove.exec();
  }
  Reseal(database, kSealedBatch, batch_id);
  AddRejected(database, batch_id, withdrawn, kReason);
}

}  // namespace

StatusOr<WithdrawOutcome> MoveWithdrawn(SQLite::Database& database, const std::filesystem::path& path,
                                        const WithdrawRequest& request, const std::string& withdrawn_at) {
  if (!HasCalibration(database, request.profile_name)) return error::NoSamplesNamed(path, request.profile_name);
  WithdrawOutcome outcome;
  for (const std::int64_t batch_id : SelectBatchIds(database, request)) {
    const std::vector<PlacedSample> withdrawn = SelectWithdrawn(database, batch_id, request);
    if (withdrawn.empty()) continue;
    Move(database, batch_id, withdrawn);
    ++outcome.requests;
    outcome.samples += static_cast<int>(withdrawn.size());
  }
  SQLite::Statement left(database, kCountOfName);
  left.bind(1, request.profile_name);
  left.executeStep();
  outcome.left = left.getColumn(0).getInt();
  if (outcome.samples == 0) return outcome;
  SQLite::Statement insert(database, kInsertWithdrawal);
  insert.bind(1, request.profile_name);
  insert.bind(2, SelectorOf(request));
  insert.bind(3, outcome.samples);
  insert.bind(4, withdrawn_at);
  insert.exec();
  return outcome;
}

std::int64_t SelectLatestWithdrawal(SQLite::Database& database) {
  return database.execAndGet("SELECT coalesce(max(id), 0) FROM withdrawal").getInt64();
}

}  // namespace moeplan::db
