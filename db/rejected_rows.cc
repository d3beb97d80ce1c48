#include "db/rejected_rows.h"

#include <set>
#include <utility>

#include "db/page.h"
#include "db/sample_columns.h"
#include "db/seal.h"

namespace moeplan::db {
namespace {

constexpr char kInsertRejected[] = R"sql(
INSERT INTO rejected_sample (batch_id, ordinal, collective, algorithm, group_size, ranks_per_node, gather_group_size,
                             shards, contention, bytes_per_element, kernel, model_dim, hidden_dim, size, times_s, ctas,
                             provenance_id, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?))sql";
constexpr char kSelectRejectedOfBatch[] = R"sql(
SELECT ordinal, collective, algorithm, group_size, ranks_per_node, gather_group_size, shards, contention,
       bytes_per_element, kernel, model_dim, hidden_dim, size, times_s, NULL, ctas, text, reason
FROM rejected_sample LEFT JOIN provenance_text ON provenance_text.id = provenance_id
WHERE batch_id = ? ORDER BY ordinal)sql";
constexpr char kSelectRejectedPage[] = R"sql(
SELECT rejected_sample.id, collective, algorithm, group_size, ranks_per_node, gather_group_size, shards, contention,
       bytes_per_element, kernel, model_dim, hidden_dim, size, times_s, NULL, ctas, text, reason, batch_id, request_id,
       profile_name, received_at
FROM rejected_sample
  JOIN sample_batch ON sample_batch.id = batch_id
  JOIN calibration ON calibration.id = calibration_id
  LEFT JOIN provenance_text ON provenance_text.id = provenance_id
WHERE rejected_sample.id < ?1 AND (?2 IS NULL OR profile_name = ?2)
  AND (?4 OR collective IS ?5 AND algorithm IS ?6 AND group_size IS ?7 AND ranks_per_node IS ?8
             AND gather_group_size IS ?9 AND shards IS ?10 AND contention IS ?11 AND bytes_per_element IS ?12
             AND kernel IS ?13 AND model_dim IS ?14 AND hidden_dim IS ?15 AND ctas IS ?16)
ORDER BY rejected_sample.id DESC LIMIT ?3)sql";
constexpr char kCountOfKey[] = R"sql(
SELECT count(*) FROM calibration
  JOIN sample_batch ON calibration_id = calibration.id
  JOIN rejected_sample ON batch_id = sample_batch.id
WHERE profile_name = ?1
  AND collective IS ?2 AND algorithm IS ?3 AND group_size IS ?4 AND ranks_per_node IS ?5 AND gather_group_size IS ?6
  AND shards IS ?7 AND contention IS ?8 AND bytes_per_element IS ?9 AND kernel IS ?10 AND model_dim IS ?11
  AND hidden_dim IS ?12 AND ctas IS ?13)sql";

constexpr SealedThing kRejected = {.name = "rejected_sample", .head = kSelectBatch, .parts = kSelectRejectedOfBatch};

RejectedSample ReadRejected(const SQLite::Statement& row, Provenances& provenances) {
  constexpr int kBehind = 1 + kReadColumns;
  return {.sample = ReadSample(row, 1, provenances),
          .reason = row.getColumn(kBehind).getString(),
          .request_id = row.getColumn(kBehind + 2).getString(),
          .profile_name = row.getColumn(kBehind + 3).getString(),
          .received_at = row.getColumn(kBehind + 4).getString()};
}

// Inserts rejected samples of one batch.
class RejectedInserter {
 public:
  RejectedInserter(SQLite::Database& database, std::int64_t batch_id)
      : provenances_(database), insert_(database, kInsertRejected) {
    insert_.bind(1, batch_id);
  }

  void Insert(int place, const Sample& sample, const std::string& reason) {
    insert_.bind(2, place);
    BindSample(insert_, sample, provenances_.Of(sample.provenance));
    insert_.bind(kBoundColumns + 1, reason);
    insert_.exec();
    insert_.reset();
  }

 private:
  ProvenanceIds provenances_;
  SQLite::Statement insert_;
};

}  // namespace

void AddRejected(SQLite::Database& database, std::int64_t batch_id, const std::vector<PlacedSample>& samples,
                 const std::string& reason) {
  RejectedInserter inserter(database, batch_id);
  for (const PlacedSample& one : samples) inserter.Insert(one.place, one.sample, reason);
  Reseal(database, kRejected, batch_id);
}

void InsertRejected(SQLite::Database& database, std::int64_t batch_id, const SampleBatch& batch) {
  RejectedInserter inserter(database, batch_id);
  for (const Rejection& rejection : batch.rejected) {
    inserter.Insert(rejection.sample, batch.samples.samples[static_cast<size_t>(rejection.sample)], rejection.reason);
  }
  Seal(database, kRejected, batch_id);
}

std::map<int, Sample> SelectRejected(SQLite::Database& database, std::int64_t batch_id) {
  std::map<int, Sample> rejected;
  Provenances provenances;
  SQLite::Statement select(database, kSelectRejectedOfBatch);
  select.bind(1, batch_id);
  while (select.executeStep()) rejected.emplace(select.getColumn(0).getInt(), ReadSample(select, 1, provenances));
  if (!rejected.empty()) CheckSeal(database, kRejected, batch_id);
  return rejected;
}

StatusOr<RejectedPage> SelectRejectedPage(SQLite::Database& database, const PageRequest& request,
                                          const std::optional<std::string>& profile_name,
                                          const std::optional<CostKey>& key) {
  ASSIGN_OR_RETURN(const std::int64_t below, FirstIdAbove(request));
  SQLite::Statement select(database, kSelectRejectedPage);
  select.bind(1, below);
  BindOptional(select, 2, profile_name);
  select.bind(3, request.size + 1);
  constexpr int kFirstKeyParameter = 5;
  select.bind(kFirstKeyParameter - 1, key ? 0 : 1);
  if (key) BindKey(select, kFirstKeyParameter, /*ctas=*/kFirstKeyParameter + kKeyColumns, *key);
  RejectedPage page;
  std::set<std::int64_t> batches;
  Provenances provenances;
  page.next_token = ReadPage(select, request.size, [&](const SQLite::Statement& row) {
    batches.insert(row.getColumn(1 + kReadColumns + 1).getInt64());
    page.samples.push_back(ReadRejected(row, provenances));
  });
  for (const std::int64_t batch_id : batches) CheckSeal(database, kRejected, batch_id);
  return page;
}

int CountRejected(SQLite::Database& database, const std::string& profile_name, const CostKey& key) {
  SQLite::Statement count(database, kCountOfKey);
  constexpr int kFirstKeyParameter = 2;
  count.bind(1, profile_name);
  BindKey(count, kFirstKeyParameter, /*ctas=*/kFirstKeyParameter + kKeyColumns, key);
  count.executeStep();
  return count.getColumn(0).getInt();
}

}  // namespace moeplan::db
