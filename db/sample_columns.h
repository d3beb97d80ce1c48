// The columns of one sample, as `sample` and `rejected_sample` share them. Call inside a transaction and inside
// Guarded.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <string>
#include <unordered_map>

#include "db/key_columns.h"
#include "db/seal.h"
#include "models/cost/samples.h"

namespace moeplan::db {

// The head of a batch, for its seals.
inline constexpr char kSelectBatch[] = R"sql(
SELECT request_id, received_at, calibration, profile_name, nodes, gpus_per_node, peak_flops_per_s, device_memory_bytes,
       node_link_bytes_per_s, network_bytes_per_s
FROM sample_batch JOIN calibration ON calibration.id = calibration_id
WHERE sample_batch.id = ?)sql";

// The samples of a batch that count, in order, as ReadSample reads them from column 0 on.
inline constexpr char kSelectSamplesOfBatch[] = R"sql(
SELECT collective, algorithm, group_size, ranks_per_node, gather_group_size, shards, contention, bytes_per_element,
       kernel, model_dim, hidden_dim, size, times_s, provenance, ctas, text
FROM sample LEFT JOIN provenance_text ON provenance_text.id = provenance_id
WHERE batch_id = ? ORDER BY ordinal)sql";

inline constexpr SealedThing kSealedBatch = {
    .name = "sample_batch", .head = kSelectBatch, .parts = kSelectSamplesOfBatch};

// The ids of provenances, each distinct one kept once.
class ProvenanceIds {
 public:
  explicit ProvenanceIds(SQLite::Database& database);

  // Keeps what is new. Throws nlohmann's error 316 for a text that is not UTF-8.
  std::int64_t Of(const Provenance& provenance);

 private:
  std::int64_t FindOrInsert(const Provenance& provenance);

  SQLite::Database& database_;
  SQLite::Statement select_, insert_;
  const Provenance* last_ = nullptr;  // Samples that come together mostly say the same.
  std::int64_t last_id_ = 0;
};

// Parameters of a row from number 3 on: the eleven of the key, size, times_s, ctas, provenance_id. 1 is the batch, 2
// the ordinal, both the caller's, as is what comes behind.
inline constexpr int kBoundColumns = 2 + kKeyColumns + 4;
void BindSample(SQLite::Statement& statement, const Sample& sample, std::int64_t provenance_id);

// Provenances as they are read: many samples share one, and each distinct text is parsed once.
class Provenances {
 public:
  const Provenance& Of(const std::string& text);

 private:
  std::unordered_map<std::string, Provenance> read_;
};

// Reads the eleven columns of the key from number `first` on, then size, times_s, the row's own provenance, ctas, and
// the text of its provenance_id (NULL: it has its own).
inline constexpr int kReadColumns = kKeyColumns + 5;
Sample ReadSample(const SQLite::Statement& row, int first, Provenances& provenances);

}  // namespace moeplan::db
