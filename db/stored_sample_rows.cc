#include "db/stored_sample_rows.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "db/errors.h"
#include "db/page.h"
#include "db/retired_rows.h"
#include "db/sample_columns.h"
#include "db/seal.h"
#include "db/value_json.h"
#include "models/text.h"

namespace moeplan::db {
namespace {

// By name, so that a name with few batches among many costs little.
constexpr char kSelectBatchesOfName[] = R"sql(
SELECT sample_batch.id, request_id, calibration, received_at
FROM calibration JOIN sample_batch ON calibration_id = calibration.id
WHERE profile_name = ?1 AND sample_batch.id >= ?2
ORDER BY sample_batch.id)sql";
// As kSelectBatchesOfName, of one.
constexpr char kSelectBatchHead[] = R"sql(
SELECT sample_batch.id, request_id, calibration, received_at
FROM sample_batch JOIN calibration ON calibration.id = calibration_id
WHERE sample_batch.id = ?)sql";
// As ReadSample reads them from the second on.
constexpr char kSelectSamples[] = R"sql(
SELECT ordinal, collective, algorithm, group_size, ranks_per_node, gather_group_size, shards, contention,
       bytes_per_element, kernel, model_dim, hidden_dim, size, times_s, provenance, ctas, text
FROM sample LEFT JOIN provenance_text ON provenance_text.id = provenance_id
WHERE batch_id = ?1 AND )sql";
constexpr char kSelectOwnProvenance[] = "SELECT provenance FROM sample WHERE batch_id = ? AND ordinal = ?";
constexpr char kSelectSharedProvenance[] = "SELECT text FROM provenance_text WHERE id = ?";
// ?4 to ?15 are the key; what tells keys apart soonest, and cheapest, first.
constexpr char kOfKey[] = R"sql(group_size IS ?6 AND ranks_per_node IS ?7 AND collective IS ?4 AND algorithm IS ?5
  AND gather_group_size IS ?8 AND shards IS ?9 AND contention IS ?10 AND bytes_per_element IS ?11
  AND kernel IS ?12 AND model_dim IS ?13 AND hidden_dim IS ?14 AND ctas IS ?15)sql";
constexpr char kInOrder[] = " ORDER BY ordinal";
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

// Of which batches samples of a key are retired: those that were when `last_batch` was the last.
class Retirements {
 public:
  Retirements(SQLite::Database& database, const std::string& profile_name, std::int64_t last_batch = kEveryBatch)
      : retired_(SelectRetired(database, profile_name)), last_batch_(last_batch) {}

  bool Has(std::int64_t batch_id, const CostKey& key) const {
    return std::ranges::any_of(retired_, [&](const RetiredKey& one) {
      return batch_id < one.before_batch_id && one.before_batch_id <= last_batch_ && one.key == key;
    });
  }

 private:
  const std::vector<RetiredKey> retired_;
  const std::int64_t last_batch_;
};

// Of rows of kSelectSamples and the row of kSelectBatchesOfName that they belong to.
StoredSample ReadStored(const SQLite::Statement& row, const SQLite::Statement& batch, Provenances& provenances) {
  return {.sample = ReadSample(row, 1, provenances),
          .request_id = batch.getColumn(1).getString(),
          .calibration = batch.getColumn(2).getString(),
          .received_at = batch.getColumn(3).getString()};
}

// At most `most` samples behind a place, of batches that are as they were stored, and the place of the last where there
// are more.
SamplePage SelectBehind(SQLite::Database& database, Place place, size_t most, const std::string& profile_name,
                        const std::optional<CostKey>& key) {
  const Retirements retirements(database, profile_name);
  SealChecker seals(database, kSealedBatch);
  SQLite::Statement select(database, StrCat(kSelectSamples, "ordinal > ?2 AND (?3 OR ", kOfKey, ")", kInOrder));
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
      if (page.samples.size() == most) {
        page.next_token = StrCat(place.batch_id, ".", place.ordinal);
        return page;
      }
      if (!std::exchange(checked, true)) seals.Check(batch_id);
      place = {batch_id, select.getColumn(0).getInt()};
      StoredSample& stored = page.samples.emplace_back(ReadStored(select, batches, provenances));
      stored.retired = retirements.Has(batch_id, stored.sample.key);
    }
  }
  return page;
}

// Where each of `times` of a key stands, and where its provenance does.
struct Row {
  std::int64_t batch_id = 0;
  int ordinal = 0;
  std::int64_t provenance_id = 0;  // 0: with the row.
};

// `times`, `parts` and `later`, and the row of each of `times`.
std::pair<KeySamples, std::vector<Row>> SelectTimes(SQLite::Database& database, const std::string& profile_name,
                                                    const CostKey& key, std::int64_t last_batch,
                                                    KnownBatches& known) {
  const Retirements retirements(database, profile_name, last_batch);
  const int number = known.NumberOf(database, key);
  SealChecker seals(database, kSealedBatch);
  SQLite::Statement select = KnownBatches::SelectTimes(database);
  SQLite::Statement batches(database, kSelectBatchesOfName);
  batches.bind(1, profile_name);
  batches.bind(2, 0);
  KeySamples found;
  std::vector<Row> rows;
  while (batches.executeStep()) {
    const std::int64_t batch_id = batches.getColumn(0).getInt64();
    const std::span<const KnownBatches::Run> runs = known.Find(database, batch_id, number);
    if (runs.empty()) continue;
    if (batch_id > last_batch) {
      for (const KnownBatches::Run& run : runs) found.later += run.size();
      continue;
    }
    known.Check(seals, batch_id);
    const std::shared_ptr<const BatchTimes> times = known.Times(select, batch_id, number, runs);
    const bool retired = retirements.Has(batch_id, key);
    for (const BatchTimes::Sample& one : times->samples) {
      const std::span<const double> times_s = std::span(times->times_s).subspan(one.first, one.last - one.first);
      found.times.push_back({.size = one.size, .times_s = times_s, .retired = retired});
      rows.push_back({batch_id, one.ordinal, one.provenance_id});
    }
    found.parts.push_back({times, retired});
  }
  return {std::move(found), std::move(rows)};
}

// Reads origins, each once: samples of a batch with the same provenance are of one.
class OriginReader {
 public:
  OriginReader(SQLite::Database& database, std::vector<KeySamples::Origin>& origins)
      : origins_(origins),
        batch_(database, kSelectBatchHead),
        own_(database, kSelectOwnProvenance),
        shared_(database, kSelectSharedProvenance) {}

  int PlaceOf(const Row& row) {
    if (row.provenance_id == 0) return PlaceOf(row.batch_id, TextAt(own_, row.batch_id, row.ordinal));
    const auto [known, is_new] = by_id_.try_emplace({row.batch_id, row.provenance_id}, 0);
    if (is_new) known->second = PlaceOf(row.batch_id, TextAt(shared_, row.provenance_id));
    return known->second;
  }

 private:
  template <typename... Values>
  static std::string TextAt(SQLite::Statement& select, Values... values) {
    select.reset();
    int index = 0;
    (select.bind(++index, values), ...);
    select.executeStep();
    return select.getColumn(0).getString();
  }

  int PlaceOf(std::int64_t batch_id, const std::string& provenance) {
    const auto [known, is_new] = by_text_.try_emplace({batch_id, provenance}, static_cast<int>(origins_.size()));
    if (is_new) Add(batch_id, provenance);
    return known->second;
  }

  void Add(std::int64_t batch_id, const std::string& provenance) {
    batch_.reset();
    batch_.bind(1, batch_id);
    batch_.executeStep();
    origins_.push_back({.request_id = batch_.getColumn(1).getString(),
                        .calibration = batch_.getColumn(2).getString(),
                        .received_at = batch_.getColumn(3).getString(),
                        .provenance = ProvenanceOf(provenance)});
  }

  std::vector<KeySamples::Origin>& origins_;
  SQLite::Statement batch_, own_, shared_;
  std::map<std::pair<std::int64_t, std::int64_t>, int> by_id_;  // By batch and provenance.
  std::map<std::pair<std::int64_t, std::string>, int> by_text_;
};

bool HasSamples(SQLite::Database& database, const std::string& profile_name) {
  SQLite::Statement select(database, kSelectAnySampleOfName);
  select.bind(1, profile_name);
  return select.executeStep();
}

}  // namespace

StatusOr<SamplePage> SelectSamplePage(SQLite::Database& database, const std::filesystem::path& path,
                                      const PageRequest& page, const std::string& profile_name,
                                      const std::optional<CostKey>& key) {
  RETURN_IF_ERROR(CheckPageSize(page.size));
  ASSIGN_OR_RETURN(const Place place, PlaceOf(page.token));
  if (!HasSamples(database, profile_name)) return error::NoSamplesNamed(path, profile_name);
  return SelectBehind(database, place, static_cast<size_t>(page.size), profile_name, key);
}

KeySamples SelectSamplesOfKey(SQLite::Database& database, const std::string& profile_name, const CostKey& key,
                              std::optional<int> version, const ChoosePlaces& choose, KnownBatches& known) {
  auto [found, rows] = SelectTimes(database, profile_name, key, LastBatchOf(database, profile_name, version), known);
  if (choose) {
    found.places = choose(found);
  } else {
    found.places.resize(found.times.size());
    std::iota(found.places.begin(), found.places.end(), size_t{0});
  }
  OriginReader origins(database, found.origins);
  for (const size_t place : found.places) found.origin_of.push_back(origins.PlaceOf(rows[place]));
  return std::move(found);
}

}  // namespace moeplan::db
