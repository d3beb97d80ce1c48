#include "db/stored_sample_rows.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <utility>

#include "db/errors.h"
#include "db/page.h"
#include "db/retired_rows.h"
#include "db/sample_columns.h"
#include "db/seal.h"
#include "models/text.h"

namespace moeplan::db {
namespace {

// By name, so that a name with few batches among many costs little.
constexpr char kSelectBatchesOfName[] = R"sql(
SELECT sample_batch.id, request_id, calibration, received_at
FROM calibration JOIN sample_batch ON calibration_id = calibration.id
WHERE profile_name = ?1 AND sample_batch.id >= ?2
ORDER BY sample_batch.id)sql";
// ?2 is the place before the first; ?3 whether every key is wanted, else that of ?4 to ?15.
constexpr char kSelectSamples[] = R"sql(
SELECT ordinal, collective, algorithm, group_size, ranks_per_node, gather_group_size, shards, contention,
       bytes_per_element, kernel, model_dim, hidden_dim, size, times_s, provenance, ctas, text
FROM sample LEFT JOIN provenance_text ON provenance_text.id = provenance_id
WHERE batch_id = ?1 AND ordinal > ?2
  AND (?3 OR collective IS ?4 AND algorithm IS ?5 AND group_size IS ?6 AND ranks_per_node IS ?7
             AND gather_group_size IS ?8 AND shards IS ?9 AND contention IS ?10 AND bytes_per_element IS ?11
             AND kernel IS ?12 AND model_dim IS ?13 AND hidden_dim IS ?14 AND ctas IS ?15)
ORDER BY ordinal)sql";
constexpr char kSelectAnySampleOfName[] = R"sql(
SELECT 1 FROM calibration
  JOIN sample_batch ON calibration_id = calibration.id
  JOIN sample ON batch_id = sample_batch.id
WHERE profile_name = ? LIMIT 1)sql";

constexpr char kSelectLastBatch[] = "SELECT last_batch_id FROM profile WHERE name = ? AND version = ?";

constexpr int kFirstKeyParameter = 4;
constexpr std::int64_t kEveryBatch = std::numeric_limits<std::int64_t>::max();

struct Place {
  std::int64_t batch_id = 0;
  int ordinal = -1;
};

StatusOr<Place> PlaceOf(const std::string& token) {
  Place place;
  if (token.empty()) return place;
  const char* const end = token.data() + token.size();
  const auto [dot, no_batch] = std::from_chars(token.data(), end, place.batch_id);
  if (no_batch != std::errc() || dot == end || *dot != '.' || place.batch_id < 1) return error::BadPageToken(token);
  const auto [rest, no_ordinal] = std::from_chars(dot + 1, end, place.ordinal);
  if (no_ordinal != std::errc() || rest != end || place.ordinal < 0) return error::BadPageToken(token);
  return place;
}

// The last batch that there was when the version was saved; kEveryBatch where that is not known.
std::int64_t LastBatchOf(SQLite::Database& database, const std::string& profile_name, std::optional<int> version) {
  if (!version) return kEveryBatch;
  SQLite::Statement select(database, kSelectLastBatch);
  select.bind(1, profile_name);
  select.bind(2, *version);
  if (!select.executeStep() || select.getColumn(0).isNull()) return kEveryBatch;
  return select.getColumn(0).getInt64();
}

// At most `most` samples behind a place, of batches up to `last_batch` that are as they were stored, and the place of
// the last where there are more. Retired are those that were when `last_batch` was the last. What is in later batches
// is counted in `later`.
SamplePage SelectBehind(SQLite::Database& database, Place place, size_t most, const std::string& profile_name,
                        const std::optional<OperationKey>& key, SoundBatches& sound,
                        std::int64_t last_batch = kEveryBatch, int* later = nullptr) {
  const std::vector<RetiredKey> retired = SelectRetired(database, profile_name);
  SealChecker seals(database, kSealedBatch);
  SQLite::Statement select(database, kSelectSamples);
  select.bind(3, key ? 0 : 1);
  if (key) BindKey(select, kFirstKeyParameter, /*ctas=*/kFirstKeyParameter + kKeyColumns, *key);
  SQLite::Statement batches(database, kSelectBatchesOfName);
  batches.bind(1, profile_name);
  batches.bind(2, place.batch_id);
  SamplePage page;
  Provenances provenances;
  while (batches.executeStep()) {
    const std::int64_t batch_id = batches.getColumn(0).getInt64();
    select.reset();
    select.bind(1, batch_id);
    select.bind(2, batch_id == place.batch_id ? place.ordinal : -1);
    bool checked = false;
    while (select.executeStep()) {
      if (batch_id > last_batch) {
        ++*later;
        continue;
      }
      if (page.samples.size() == most) {
        page.next_token = StrCat(place.batch_id, ".", place.ordinal);
        return page;
      }
      if (!checked) sound.Check(seals, batch_id);
      checked = true;
      place = {batch_id, select.getColumn(0).getInt()};
      StoredSample& stored = page.samples.emplace_back();
      stored = {.sample = ReadSample(select, 1, provenances),
                .request_id = batches.getColumn(1).getString(),
                .calibration = batches.getColumn(2).getString(),
                .received_at = batches.getColumn(3).getString()};
      stored.retired = std::ranges::any_of(retired, [&](const RetiredKey& one) {
        return batch_id < one.before_batch_id && one.before_batch_id <= last_batch && one.key == stored.sample.key;
      });
    }
  }
  return page;
}

bool HasSamples(SQLite::Database& database, const std::string& profile_name) {
  SQLite::Statement select(database, kSelectAnySampleOfName);
  select.bind(1, profile_name);
  return select.executeStep();
}

}  // namespace

void SoundBatches::Check(SealChecker& seals, std::int64_t batch_id) {
  constexpr std::chrono::seconds kSoundFor(30);
  constexpr size_t kMostRemembered = 100'000;
  const auto now = std::chrono::steady_clock::now();
  const auto known = checked_.find(batch_id);
  if (known != checked_.end() && now - known->second < kSoundFor) return;
  seals.Check(batch_id);
  if (checked_.size() >= kMostRemembered) checked_.clear();
  checked_[batch_id] = now;
}

StatusOr<SamplePage> SelectSamplePage(SQLite::Database& database, const std::filesystem::path& path,
                                      const PageRequest& page, const std::string& profile_name,
                                      const std::optional<OperationKey>& key, SoundBatches& sound) {
  RETURN_IF_ERROR(CheckPageSize(page.size));
  ASSIGN_OR_RETURN(const Place place, PlaceOf(page.token));
  if (!HasSamples(database, profile_name)) return error::NoSamplesNamed(path, profile_name);
  return SelectBehind(database, place, static_cast<size_t>(page.size), profile_name, key, sound);
}

KeySamples SelectSamplesOfKey(SQLite::Database& database, const std::string& profile_name, const OperationKey& key,
                              std::optional<int> version, SoundBatches& sound) {
  KeySamples found;
  const std::int64_t last_batch = LastBatchOf(database, profile_name, version);
  found.samples =
      SelectBehind(database, {}, std::numeric_limits<size_t>::max(), profile_name, key, sound, last_batch, &found.later)
          .samples;
  return found;
}

}  // namespace moeplan::db
