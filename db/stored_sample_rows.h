// Stored samples as they are listed, one by one or those of one key. Call inside a transaction and inside Guarded:
// SQLite's and nlohmann's exceptions pass through.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "db/key_columns.h"
#include "db/seal.h"
#include "db/store.h"
#include "models/status.h"

namespace moeplan::db {

// Which batches were found to be as they were stored within the last half minute: who looks at one cost after the other
// does not have all batches of the name read each time. For what is shown alone; fits check everything. Not
// thread-safe.
class SoundBatches {
 public:
  // As SealChecker::Check.
  void Check(SealChecker& seals, std::int64_t batch_id);

 private:
  std::unordered_map<std::int64_t, std::chrono::steady_clock::time_point> checked_;
};

// A page's token is the batch and the place of its last sample.
StatusOr<SamplePage> SelectSamplePage(SQLite::Database& database, const std::filesystem::path& path,
                                      const PageRequest& page, const std::string& profile_name,
                                      const std::optional<OperationKey>& key);

// Those chosen in full, where nothing chooses all. With a version: as they were when it was saved; all of them where that is not known.
KeySamples SelectSamplesOfKey(SQLite::Database& database, const std::string& profile_name, const OperationKey& key,
                              std::optional<int> version, const ChoosePlaces& choose, SoundBatches& sound);

}  // namespace moeplan::db
