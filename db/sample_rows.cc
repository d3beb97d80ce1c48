#include "db/sample_rows.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "db/cluster_columns.h"
#include "db/errors.h"
#include "db/key_columns.h"
#include "db/seal.h"
#include "db/value_json.h"

namespace moeplan::db {
namespace {

constexpr char kSelectBatchOfRequest[] = "SELECT id FROM sample_batch WHERE request_id = ?";
constexpr char kSelectCalibrationOf[] = R"sql(
SELECT id, profile_name, nodes, gpus_per_node, peak_flops_per_s, device_memory_bytes
FROM calibration WHERE calibration = ?)sql";
constexpr char kInsertCalibration[] = R"sql(
INSERT INTO calibration (calibration, profile_name, nodes, gpus_per_node, peak_flops_per_s, device_memory_bytes)
VALUES (?, ?, ?, ?, ?, ?))sql";
constexpr char kInsertBatch[] = "INSERT INTO sample_batch (calibration_id, request_id, received_at) VALUES (?, ?, ?)";
constexpr char kInsertSample[] = R"sql(
INSERT INTO sample (batch_id, ordinal, collective, algorithm, group_size, ranks_per_node, gather_group_size, shards,
                    contention, bytes_per_element, kernel, model_dim, hidden_dim, size, times_s, provenance,
                    ctas)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?))sql";

constexpr char kSelectCalibrations[] = R"sql(
SELECT id, calibration, profile_name, nodes, gpus_per_node, peak_flops_per_s, device_memory_bytes
FROM calibration
WHERE (?1 IS NULL OR profile_name = ?1) AND (?2 IS NULL OR calibration = ?2)
ORDER BY id)sql";
constexpr char kSelectBatchesOfCalibration[] = "SELECT id FROM sample_batch WHERE calibration_id = ? ORDER BY id";
constexpr char kSelectBatch[] = R"sql(
SELECT request_id, received_at, calibration, profile_name, nodes, gpus_per_node, peak_flops_per_s, device_memory_bytes
FROM sample_batch JOIN calibration ON calibration.id = calibration_id
WHERE sample_batch.id = ?)sql";
constexpr char kSelectSamplesOfBatch[] = R"sql(
SELECT collective, algorithm, group_size, ranks_per_node, gather_group_size, shards, contention, bytes_per_element,
       kernel, model_dim, hidden_dim, size, times_s, provenance, ctas
FROM sample WHERE batch_id = ? ORDER BY ordinal)sql";

constexpr SealedThing kBatch = {.name = "sample_batch", .head = kSelectBatch, .parts = kSelectSamplesOfBatch};

// A session as its first batch describes it.
struct CalibrationRow {
  std::int64_t id = 0;
  std::string profile_name;
  Cluster cluster;
};

void BindOptionalText(SQLite::Statement& statement, int index, const std::optional<std::string>& text) {
  if (text) {
    statement.bind(index, *text);
  } else {
    statement.bind(index);
  }
}

std::optional<std::int64_t> SelectBatchOfRequest(SQLite::Database& database, const std::string& request_id) {
  SQLite::Statement select(database, kSelectBatchOfRequest);
  select.bind(1, request_id);
  if (!select.executeStep()) return std::nullopt;
  return select.getColumn(0).getInt64();
}

Sample ReadSample(const SQLite::Statement& row) {
  return {.key = ReadKey(row, 0, /*ctas=*/3 + kKeyColumns),
          .size = row.getColumn(kKeyColumns).getDouble(),
          .times_s = TimesOf(row.getColumn(kKeyColumns + 1).getString()),
          .provenance = ProvenanceOf(row.getColumn(kKeyColumns + 2).getString())};
}

void SelectSamples(SQLite::Database& database, std::int64_t batch_id, std::vector<Sample>& samples) {
  CheckSeal(database, kBatch, batch_id);
  SQLite::Statement select(database, kSelectSamplesOfBatch);
  select.bind(1, batch_id);
  while (select.executeStep()) samples.push_back(ReadSample(select));
}

SampleBatch SelectBatch(SQLite::Database& database, std::int64_t batch_id) {
  SQLite::Statement select(database, kSelectBatch);
  select.bind(1, batch_id);
  select.executeStep();
  SampleBatch batch = {.request_id = select.getColumn(0).getString(),
                       .calibration = select.getColumn(2).getString(),
                       .samples = {.name = select.getColumn(3).getString(), .cluster = ReadCluster(select, 4)}};
  SelectSamples(database, batch_id, batch.samples.samples);
  return batch;
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
  insert.bind(1, batch.calibration);
  insert.bind(2, batch.samples.name);
  BindCluster(insert, 3, batch.samples.cluster);
  insert.exec();
  return database.getLastInsertRowid();
}

StatusOr<std::int64_t> FindOrInsertCalibration(SQLite::Database& database, const SampleBatch& batch) {
  const std::optional<CalibrationRow> found = SelectCalibration(database, batch.calibration);
  if (!found) return InsertCalibration(database, batch);
  if (found->profile_name != batch.samples.name || found->cluster != batch.samples.cluster) {
    return error::CalibrationDiffers(batch.calibration);
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

void InsertSamples(SQLite::Database& database, std::int64_t batch_id, const std::vector<Sample>& samples) {
  SQLite::Statement insert(database, kInsertSample);
  insert.bind(1, batch_id);
  for (size_t i = 0; i < samples.size(); ++i) {
    insert.bind(2, static_cast<std::int64_t>(i));
    BindKey(insert, 3, /*ctas=*/6 + kKeyColumns, samples[i].key);
    insert.bind(3 + kKeyColumns, samples[i].size);
    insert.bind(4 + kKeyColumns, TimesText(samples[i].times_s));
    insert.bind(5 + kKeyColumns, ProvenanceText(samples[i].provenance));
    insert.exec();
    insert.reset();
  }
}

}  // namespace

StatusOr<Appended> InsertBatch(SQLite::Database& database, const SampleBatch& given, const std::string& received_at) {
  SampleBatch batch = given;
  if (batch.calibration.empty()) batch.calibration = batch.request_id;
  if (const auto stored = SelectBatchOfRequest(database, batch.request_id)) {
    if (SelectBatch(database, *stored) != batch) return error::RequestReused(batch.request_id);
    return Appended::kRepeated;
  }
  ASSIGN_OR_RETURN(const std::int64_t calibration_id, FindOrInsertCalibration(database, batch));
  const std::int64_t batch_id = InsertBatchRow(database, calibration_id, batch.request_id, received_at);
  InsertSamples(database, batch_id, batch.samples.samples);
  Seal(database, kBatch, batch_id);
  return Appended::kStored;
}

StatusOr<std::vector<Calibration>> SelectCalibrations(SQLite::Database& database, const std::filesystem::path& path,
                                                      const SampleFilter& filter) {
  SQLite::Statement select(database, kSelectCalibrations);
  BindOptionalText(select, 1, filter.profile_name);
  BindOptionalText(select, 2, filter.calibration);
  std::vector<Calibration> calibrations;
  while (select.executeStep()) {
    Calibration& calibration = calibrations.emplace_back();
    calibration.calibration = select.getColumn(1).getString();
    calibration.samples.name = select.getColumn(2).getString();
    calibration.samples.cluster = ReadCluster(select, 3);
    SQLite::Statement batches(database, kSelectBatchesOfCalibration);
    batches.bind(1, select.getColumn(0).getInt64());
    while (batches.executeStep()) {
      SelectSamples(database, batches.getColumn(0).getInt64(), calibration.samples.samples);
    }
  }
  if (calibrations.empty()) return error::NoSamples(path);
  return calibrations;
}

}  // namespace moeplan::db
