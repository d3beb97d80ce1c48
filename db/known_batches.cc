#include "db/known_batches.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "db/value_json.h"

namespace moeplan::db {
namespace {

// All twelve columns of a key, in BindKey's order.
constexpr char kSelectKeysOfBatch[] = R"sql(
SELECT collective, algorithm, group_size, ranks_per_node, gather_group_size, shards, contention, bytes_per_element,
       kernel, model_dim, hidden_dim, ctas, ordinal
FROM sample WHERE batch_id = ? ORDER BY ordinal)sql";
constexpr char kSelectTimes[] = R"sql(
SELECT ordinal, size, times_s, provenance_id
FROM sample WHERE batch_id = ?1 AND ordinal BETWEEN ?2 AND ?3 ORDER BY ordinal)sql";
constexpr char kSelectKey[] = "SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12";
constexpr int kAllKeyColumns = kKeyColumns + 1;

size_t BytesOf(const BatchTimes& times) {
  constexpr size_t kBesides = 200;  // Of the map and the two vectors.
  return kBesides + times.samples.size() * sizeof(BatchTimes::Sample) + times.times_s.size() * sizeof(double);
}

BatchTimes ReadTimes(SQLite::Statement& select, std::int64_t batch_id, std::span<const KnownBatches::Run> runs) {
  BatchTimes read;
  for (const KnownBatches::Run& run : runs) {
    select.reset();
    select.bind(1, batch_id);
    select.bind(2, run.first);
    select.bind(3, run.last);
    while (select.executeStep()) {
      BatchTimes::Sample& sample = read.samples.emplace_back();
      sample.ordinal = select.getColumn(0).getInt();
      sample.size = select.getColumn(1).getDouble();
      sample.first = read.times_s.size();
      const std::vector<double> times_s = TimesOf(select.getColumn(2).getString());
      read.times_s.insert(read.times_s.end(), times_s.begin(), times_s.end());
      sample.last = read.times_s.size();
      if (const SQLite::Column shared = select.getColumn(3); !shared.isNull()) sample.provenance_id = shared.getInt64();
    }
  }
  read.samples.shrink_to_fit();
  read.times_s.shrink_to_fit();
  return read;
}

}  // namespace

void KnownBatches::ForgetBefore(std::int64_t latest_withdrawal) {
  if (latest_withdrawal == latest_withdrawal_) return;
  *this = {};
  latest_withdrawal_ = latest_withdrawal;
}

void KnownBatches::Check(SealChecker& seals, std::int64_t batch_id) {
  constexpr std::chrono::seconds kSoundFor(30);
  constexpr size_t kMostRemembered = 100'000;
  const auto now = std::chrono::steady_clock::now();
  const auto known = sound_since_.find(batch_id);
  if (known != sound_since_.end() && now - known->second < kSoundFor) return;
  seals.Check(batch_id);
  if (sound_since_.size() >= kMostRemembered) sound_since_.clear();
  sound_since_[batch_id] = now;
}

int KnownBatches::NumberOf(SQLite::Database& database, const CostKey& key) {
  SQLite::Statement select(database, kSelectKey);
  BindKey(select, 1, kAllKeyColumns, key);
  select.executeStep();
  return NumberOf(select);
}

std::span<const KnownBatches::Run> KnownBatches::Find(SQLite::Database& database, std::int64_t batch_id, int key) {
  constexpr size_t kMostRuns = 2'000'000;  // 24 MB.
  auto known = batches_.find(batch_id);
  if (known == batches_.end()) {
    if (runs_ > kMostRuns) {
      batches_.clear();
      runs_ = 0;
    }
    known = batches_.emplace(batch_id, Read(database, batch_id)).first;
    runs_ += known->second.size();
  }
  return std::ranges::equal_range(known->second, key, {}, &Run::key);
}

SQLite::Statement KnownBatches::SelectTimes(SQLite::Database& database) {
  return SQLite::Statement(database, kSelectTimes);
}

std::shared_ptr<const BatchTimes> KnownBatches::Times(SQLite::Statement& select_times, std::int64_t batch_id, int key,
                                                      std::span<const Run> runs) {
  constexpr size_t kMostBytes = 40'000'000;
  const auto known = times_.find({batch_id, key});
  if (known != times_.end()) return known->second;
  if (times_bytes_ > kMostBytes) {
    times_.clear();
    times_bytes_ = 0;
  }
  auto times = std::make_shared<const BatchTimes>(ReadTimes(select_times, batch_id, runs));
  times_bytes_ += BytesOf(*times);
  return times_.emplace(std::pair(batch_id, key), std::move(times)).first->second;
}

int KnownBatches::NumberOf(const SQLite::Statement& row) {
  columns_.clear();
  for (int column = 0; column < kAllKeyColumns; ++column) {
    const SQLite::Column value = row.getColumn(column);
    // NULL is no text, not the empty one.
    columns_ += value.isNull() ? '\1' : '\0';
    columns_.append(value.getText(), static_cast<size_t>(value.getBytes()));
  }
  return numbers_.try_emplace(columns_, static_cast<int>(numbers_.size())).first->second;
}

std::vector<KnownBatches::Run> KnownBatches::Read(SQLite::Database& database, std::int64_t batch_id) {
  SQLite::Statement select(database, kSelectKeysOfBatch);
  select.bind(1, batch_id);
  std::vector<Run> runs;
  while (select.executeStep()) {
    const int key = NumberOf(select), ordinal = select.getColumn(kAllKeyColumns).getInt();
    if (!runs.empty() && runs.back().key == key && runs.back().last + 1 == ordinal) {
      runs.back().last = ordinal;
    } else {
      runs.push_back({key, ordinal, ordinal});
    }
  }
  std::ranges::sort(runs, {}, [](const Run& run) { return std::tuple(run.key, run.first); });
  runs.shrink_to_fit();
  return runs;
}

}  // namespace moeplan::db
