// What is remembered of batches of samples, so that who looks at one cost after the other does not have all batches of
// the name read each time: a stored batch changes only when samples are withdrawn, and no other gets its number
// (db/sample_rows.cc). For what is shown alone: fits read and check everything. Call inside a transaction.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "db/key_columns.h"
#include "db/seal.h"

namespace moeplan::db {

// Samples of one key in one batch, by rising ordinal.
struct BatchTimes {
  struct Sample {
    int ordinal = 0;
    std::int64_t provenance_id = 0;  // 0: its row has a text of its own.
    double size = 0;
    size_t first = 0, last = 0;  // Its repeats are times_s[first] to times_s[last - 1].
  };
  std::vector<Sample> samples;
  std::vector<double> times_s;
};

// Not thread-safe.
class KnownBatches {
 public:
  // Samples of one key that stand side by side in their batch, by ordinal.
  struct Run {
    int key = 0;
    int first = 0, last = 0;

    int size() const { return last - first + 1; }
  };

  // Forgets everything where samples were withdrawn since the last call: their batches are not as they were.
  void ForgetBefore(std::int64_t latest_withdrawal);

  // Throws as SealChecker::Check, which it asks again half a minute after a batch was found to be as it was stored.
  void Check(SealChecker& seals, std::int64_t batch_id);

  // What Find calls the key.
  int NumberOf(SQLite::Database& database, const CostKey& key);
  // Where a batch has samples of the key of that number, rising. Valid until the next Find.
  std::span<const Run> Find(SQLite::Database& database, std::int64_t batch_id, int key);

  // What is read of one of those; make it once for many calls of Times.
  static SQLite::Statement SelectTimes(SQLite::Database& database);
  // Of the key of that number, which the batch has at `runs`.
  std::shared_ptr<const BatchTimes> Times(SQLite::Statement& select_times, std::int64_t batch_id, int key,
                                          std::span<const Run> runs);

 private:
  int NumberOf(const SQLite::Statement& row);
  std::vector<Run> Read(SQLite::Database& database, std::int64_t batch_id);

  std::int64_t latest_withdrawal_ = 0;
  std::unordered_map<std::int64_t, std::chrono::steady_clock::time_point> sound_since_;
  std::unordered_map<std::int64_t, std::vector<Run>> batches_;                       // By key, then ordinal.
  std::unordered_map<std::string, int> numbers_;                                     // By the bytes of a key's columns.
  size_t runs_ = 0;                                                                  // Of all batches.
  std::map<std::pair<std::int64_t, int>, std::shared_ptr<const BatchTimes>> times_;  // By batch and key.
  size_t times_bytes_ = 0;                                                           // Of all of them.
  std::string columns_;                                                              // Scratch.
};

}  // namespace moeplan::db
