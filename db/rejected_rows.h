// Samples that were set aside, as rows. Call inside a transaction and inside Guarded: SQLite's and nlohmann's
// exceptions pass through.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "db/key_columns.h"
#include "db/store.h"
#include "models/status.h"

namespace moeplan::db {

// A sample and its place among all that its request brought.
struct PlacedSample {
  int place = 0;
  Sample sample;
};
// Adds to the rejected samples of a stored batch, which may have none, and seals them anew.
void AddRejected(SQLite::Database& database, std::int64_t batch_id, const std::vector<PlacedSample>& samples,
                 const std::string& reason);

// Requires a rejection.
void InsertRejected(SQLite::Database& database, std::int64_t batch_id, const SampleBatch& batch);

// The rejected samples of a batch by their place in it.
std::map<int, Sample> SelectRejected(SQLite::Database& database, std::int64_t batch_id);

StatusOr<RejectedPage> SelectRejectedPage(SQLite::Database& database, const PageRequest& page,
                                          const std::optional<std::string>& profile_name,
                                          const std::optional<CostKey>& key);

int CountRejected(SQLite::Database& database, const std::string& profile_name, const CostKey& key);

}  // namespace moeplan::db
