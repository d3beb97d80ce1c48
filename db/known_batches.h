// What is remembered of batches of samples, so that who looks at one cost after the other does not have all batches of
// the name read each time: a stored batch does not change, and no other gets its number (db/sample_rows.cc). For what
// is shown alone: fits read and check everything. Call inside a transaction.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "db/key_columns.h"
#include "db/seal.h"

namespace moeplan::db {

// Not thread-safe.
class KnownBatches {
 public:
  // Samples of one key that stand side by side in their batch, by ordinal.
  struct Run {
    int key = 0;
    int first = 0, last = 0;

    int size() const { return last - first + 1; }
  };

  // Throws as SealChecker::Check, which it asks again half a minute after a batch was found to be as it was stored.
  void Check(SealChecker& seals, std::int64_t batch_id);

  // What Find calls the key.
  int NumberOf(SQLite::Database& database, const OperationKey& key);
  // Where a batch has samples of the key of that number, rising. Valid until the next call.
  std::span<const Run> Find(SQLite::Database& database, std::int64_t batch_id, int key);

 private:
  int NumberOf(const SQLite::Statement& row);
  std::vector<Run> Read(SQLite::Database& database, std::int64_t batch_id);

  std::unordered_map<std::int64_t, std::chrono::steady_clock::time_point> sound_since_;
  std::unordered_map<std::int64_t, std::vector<Run>> batches_;  // By key, then ordinal.
  std::unordered_map<std::string, int> numbers_;                // By the bytes of a key's columns.
  size_t runs_ = 0;                                             // Of all batches.
  std::string columns_;                                         // Scratch.
};

}  // namespace moeplan::db
