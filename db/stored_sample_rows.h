// Stored samples as they are listed, one by one or those of one key. Call inside a transaction and inside Guarded:
// SQLite's and nlohmann's exceptions pass through.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <filesystem>
#include <optional>
#include <string>

#include "db/key_columns.h"
#include "db/known_batches.h"
#include "db/store.h"
#include "models/status.h"

namespace moeplan::db {

// A page's token is the batch and the place of its last sample.
StatusOr<SamplePage> SelectSamplePage(SQLite::Database& database, const std::filesystem::path& path,
                                      const PageRequest& page, const std::string& profile_name,
                                      const std::optional<CostKey>& key);

// Those chosen with their origins, where nothing chooses all. With a version: as they were when it was saved; all of
// them where that is not known.
KeySamples SelectSamplesOfKey(SQLite::Database& database, const std::string& profile_name, const CostKey& key,
                              std::optional<int> version, const ChoosePlaces& choose, KnownBatches& known);

}  // namespace moeplan::db
