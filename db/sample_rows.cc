#include "db/sample_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "db/cluster_columns.h"
#include "db/errors.h"
#include "db/rejected_rows.h"
#include "db/retired_rows.h"
#include "db/sample_columns.h"
#include "db/seal.h"

namespace moeplan::db {
namespace {

// Whether two descriptions may be of one cluster: a peak or a memory that one of them does not know (0) is no
// difference, nor is the rate of its links, which may slow down.
bool MayBeOne(const Cluster& one, const Cluster& other) {
  const auto alike = [](double a, double b) { return a == b || a == 0 || b == 0; };
  return one.nodes == other.nodes && one.gpus_per_node == other.gpus_per_node &&
         alike(one.peak_flops_per_s, other.peak_flops_per_s) &&
         alike(one.device_memory_bytes, other.device_memory_bytes);
}

constexpr char kSelectBatchOfRequest[] = "SELECT id FROM sample_batch WHERE request_id = ?";
constexpr char kSelectCalibrationOf[] = R"sql(
SELECT id, profile_name, nodes, gpus_per_node, peak_flops_per_s, device_memory_bytes, node_link_bytes_per_s,
       network_bytes_per_s
FROM calibration WHERE calibration = ?)sql";
constexpr char kInsertCalibration[] = R"sql(
INSERT INTO calibration (calibration, profile_name, nodes, gpus_per_node, peak_flops_per_s, device_memory_bytes,
                         node_link_bytes_per_s, network_bytes_per_s)
VALUES (?, ?, ?, ?, ?, ?, ?, ?))sql";
// Ids go on rising where the last batches were removed: profiles tell by them which batches are older.
constexpr char kInsertBatch[] = R"sql(
INSERT INTO sample_batch (calibration_id, request_id, received_at, id)
VALUES (?, ?, ?, 1 + max(coalesce((SELECT max(id) FROM sample_batch), 0),
                         coalesce((SELECT max(last_batch_id) FROM profile), 0))))sql";
constexpr char kInsertSample[] = R"sql(
INSERT INTO sample (batch_id, ordinal, collective, algorithm, group_size, ranks_per_node, gather_group_size, shards,
                    contention, bytes_per_element, kernel, model_dim, hidden_dim, size, times_s, ctas, provenance_id,
                    provenance)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ''))sql";

constexpr char kSelectCalibrations[] = R"sql(
SELECT id, calibration, profile_name, nodes, gpus_per_node, peak_flops_per_s, device_memory_bytes,
       node_link_bytes_per_s, network_bytes_per_s
FROM calibration
WHERE (?1 IS NULL OR profile_name = ?1) AND (?2 IS NULL OR calibration = ?2)
ORDER BY id)sql";
constexpr char kSelectBatchesOfCalibration[] = "SELECT id FROM sample_batch WHERE calibration_id = ? ORDER BY id";
// The first cluster of the name that has samples which count.
constexpr char kSelectClusterOfName[] = R"sql(
SELECT nodes, gpus_per_node, peak_flops_per_s, device_memory_bytes, node_link_bytes_per_s, network_bytes_per_s
FROM calibration
WHERE profile_name = ? AND EXISTS (SELECT 1 FROM sample_batch JOIN sample ON batch_id = sample_batch.id
                                   WHERE calibration_id = calibration.id)
ORDER BY id LIMIT 1)sql";

// A session as its first batch describes it.
struct CalibrationRow {
  std::int64_t id = 0;
  std::string profile_name;
  Cluster cluster;
};

const std::string& CalibrationOf(const SampleBatch& batch) {
  return batch.calibration.empty() ? batch.request_id : batch.calibration;
}

std::optional<std::int64_t> SelectBatchOfRequest(SQLite::Database& database, const std::string& request_id) {
  SQLite::Statement select(database, kSelectBatchOfRequest);
  select.bind(1, request_id);
  if (!select.executeStep()) return std::nullopt;
  return select.getColumn(0).getInt64();
}

void SelectSamples(SQLite::Database& database, std::int64_t batch_id, std::vector<Sample>& samples) {
  CheckSeal(database, kSealedBatch, batch_id);
  SQLite::Statement select(database, kSelectSamplesOfBatch);
  select.bind(1, batch_id);
  Provenances provenances;
  while (select.executeStep()) samples.push_back(ReadSample(select, 0, provenances));
}

void SelectThoseThatCount(SQLite::Database& database, std::int64_t batch_id, const std::vector<RetiredKey>& retired,
                          std::vector<Sample>& samples) {
  const auto first = std::ssize(samples);
  SelectSamples(database, batch_id, samples);
  if (retired.empty()) return;
  const auto counts_no_more = [&](const Sample& sample) {
    return std::ranges::any_of(
        retired, [&](const RetiredKey& one) { return batch_id < one.before_batch_id && one.key == sample.key; });
  };
  samples.erase(std::remove_if(samples.begin() + first, samples.end(), counts_no_more), samples.end());
}

// As it came: those that count and those set aside, in their order.
std::vector<Sample> SelectRequest(SQLite::Database& database, std::int64_t batch_id) {
  std::vector<Sample> samples;
  SelectSamples(database, batch_id, samples);
  // By rising place, so that all before it are there already.
  for (auto& [place, sample] : SelectRejected(database, batch_id)) {
    samples.insert(samples.begin() + std::min<std::ptrdiff_t>(place, std::ssize(samples)), std::move(sample));
  }
  return samples;
}

SampleBatch SelectBatch(SQLite::Database& database, std::int64_t batch_id) {
  SQLite::Statement select(database, kSelectBatch);
  select.bind(1, batch_id);
  select.executeStep();
  return {.request_id = select.getColumn(0).getString(),
          .calibration = select.getColumn(2).getString(),
          .samples = {.name = select.getColumn(3).getString(),
                      .cluster = ReadCluster(select, 4),
                      .samples = SelectRequest(database, batch_id)}};
}

bool SameNumber(double one, double other) { return one == other || (std::isnan(one) && std::isnan(other)); }

bool SameSample(const Sample& one, const Sample& other) {
  return one.key == other.key && SameNumber(one.size, other.size) &&
         std::ranges::equal(one.times_s, other.times_s, SameNumber) && one.provenance == other.provenance;
}

// Whether two requests brought the same. What is set aside may depend on the day: an agent may be known by now.
bool SameRequest(const SampleBatch& one, const SampleBatch& other) {
  return CalibrationOf(one) == CalibrationOf(other) && one.samples.name == other.samples.name &&
         one.samples.cluster == other.samples.cluster &&
         std::ranges::equal(one.samples.samples, other.samples.samples, SameSample);
}

// What became of a batch that is stored; `samples` is all that it brought.
BatchOutcome OutcomeOf(SQLite::Database& database, std::int64_t batch_id, size_t samples) {
  const int rejected = static_cast<int>(SelectRejected(database, batch_id).size());
  return {.repeated = true, .stored_samples = static_cast<int>(samples) - rejected, .rejected_samples = rejected};
}

std::optional<CalibrationRow> SelectCalibration(SQLite::Database& database, const std::string& calibration) {
  SQLite::Statement select(database, kSelectCalibrationOf);
  select.bind(1, calibration);
  if (!select.executeStep()) return std::nullopt;
  return CalibrationRow{.id = select.getColumn(0).getInt64(),
                        .profile_name = select.getColumn(1).getString(),
                        .cluster = ReadCluster(select, 2)};
}

std::int64_t InsertCalibration(SQLite::Database& database, const SampleBatch& batch) {
  SQLite::Statement insert(database, kInsertCalibration);
  insert.bind(1, CalibrationOf(batch));
  insert.bind(2, batch.samples.name);
  BindCluster(insert, 3, batch.samples.cluster);
  insert.exec();
  return database.getLastInsertRowid();
}

StatusOr<std::int64_t> FindOrInsertCalibration(SQLite::Database& database, const SampleBatch& batch) {
  const std::optional<CalibrationRow> found = SelectCalibration(database, CalibrationOf(batch));
  if (!found) return InsertCalibration(database, batch);
  if (found->profile_name != batch.samples.name || found->cluster != batch.samples.cluster) {
    return error::CalibrationDiffers(CalibrationOf(batch));
  }
  return found->id;
}

std::int64_t InsertBatchRow(SQLite::Database& database, std::int64_t calibration_id, const std::string& request_id,
                            const std::string& received_at) {
  SQLite::Statement insert(database, kInsertBatch);
  insert.bind(1, calibration_id);
  insert.bind(2, request_id);
  insert.bind(3, received_at);
  insert.exec();
  return database.getLastInsertRowid();
}

// All but the rejected ones.
void InsertSamples(SQLite::Database& database, std::int64_t batch_id, const SampleBatch& batch) {
  ProvenanceIds provenances(database);
  SQLite::Statement insert(database, kInsertSample);
  insert.bind(1, batch_id);
  auto rejection = batch.rejected.begin();
  for (int i = 0; i < std::ssize(batch.samples.samples); ++i) {
    if (rejection != batch.rejected.end() && rejection->sample == i) {
      ++rejection;
      continue;
    }
    const Sample& sample = batch.samples.samples[static_cast<size_t>(i)];
    insert.bind(2, i);
    BindSample(insert, sample, provenances.Of(sample.provenance));
    insert.exec();
    insert.reset();
  }
}

BatchOutcome InsertNewBatch(SQLite::Database& database, std::int64_t calibration_id, const SampleBatch& batch,
                            const std::string& received_at) {
  const std::int64_t batch_id = InsertBatchRow(database, calibration_id, batch.request_id, received_at);
  InsertSamples(database, batch_id, batch);
  Seal(database, kSealedBatch, batch_id);
  if (!batch.rejected.empty()) InsertRejected(database, batch_id, batch);
  return {.stored_samples = static_cast<int>(batch.samples.samples.size() - batch.rejected.size()),
          .rejected_samples = static_cast<int>(batch.rejected.size())};
}

}  // namespace

StatusOr<BatchOutcome> InsertBatch(SQLite::Database& database, const SampleBatch& batch,
                                   const std::string& received_at) {
  if (const auto stored = SelectBatchOfRequest(database, batch.request_id)) {
    if (!SameRequest(SelectBatch(database, *stored), batch)) return error::RequestReused(batch.request_id);
    return OutcomeOf(database, *stored, batch.samples.samples.size());
  }
  ASSIGN_OR_RETURN(const std::int64_t calibration_id, FindOrInsertCalibration(database, batch));
  return InsertNewBatch(database, calibration_id, batch, received_at);
}

Status CheckClusterOfName(SQLite::Database& database, const SampleSet& samples) {
  SQLite::Statement select(database, kSelectClusterOfName);
  select.bind(1, samples.name);
  if (!select.executeStep()) return OkStatus();
  const Cluster cluster = ReadCluster(select, 0);
  return MayBeOne(cluster, samples.cluster) ? OkStatus() : error::OtherCluster(samples.name, samples.cluster, cluster);
}

StatusOr<std::vector<Calibration>> SelectCalibrations(SQLite::Database& database, const std::filesystem::path& path,
                                                      const SampleFilter& filter) {
  SQLite::Statement select(database, kSelectCalibrations);
  BindOptional(select, 1, filter.profile_name);
  BindOptional(select, 2, filter.calibration);
  std::vector<Calibration> calibrations;
  std::map<std::string, std::vector<RetiredKey>> retired;  // By profile name.
  while (select.executeStep()) {
    Calibration calibration = {.calibration = select.getColumn(1).getString(),
                               .samples = {.name = select.getColumn(2).getString(), .cluster = ReadCluster(select, 3)}};
    SQLite::Statement batches(database, kSelectBatchesOfCalibration);
    batches.bind(1, select.getColumn(0).getInt64());
    const auto [known, unseen] = retired.try_emplace(calibration.samples.name);
    if (unseen && !filter.calibration) known->second = SelectRetired(database, calibration.samples.name);
    while (batches.executeStep()) {
      SelectThoseThatCount(database, batches.getColumn(0).getInt64(), known->second, calibration.samples.samples);
    }
    if (!calibration.samples.samples.empty()) calibrations.push_back(std::move(calibration));
  }
  if (calibrations.empty()) return error::NoSamples(path);
  return calibrations;
}

bool HasBatch(SQLite::Database& database, const std::string& request_id) {
  return SelectBatchOfRequest(database, request_id).has_value();
}

}  // namespace moeplan::db
