#include "db/sample_columns.h"

#include <limits>

#include "db/value_json.h"

namespace moeplan::db {
namespace {

constexpr char kSelectProvenance[] = "SELECT id FROM provenance_text WHERE text = ?";
constexpr char kInsertProvenance[] = "INSERT INTO provenance_text (text) VALUES (?)";

std::string OwnOrShared(const SQLite::Column& own, const SQLite::Column& shared) {
  return shared.isNull() ? own.getString() : shared.getString();
}

double NumberOrNaN(const SQLite::Column& column) {
  return column.isNull() ? std::numeric_limits<double>::quiet_NaN() : column.getDouble();
}

}  // namespace

ProvenanceIds::ProvenanceIds(SQLite::Database& database)
    : database_(database), select_(database, kSelectProvenance), insert_(database, kInsertProvenance) {}

std::int64_t ProvenanceIds::Of(const Provenance& provenance) {
  if (last_ == nullptr || *last_ != provenance) {
    last_id_ = FindOrInsert(provenance);
    last_ = &provenance;
  }
  return last_id_;
}

std::int64_t ProvenanceIds::FindOrInsert(const Provenance& provenance) {
  const std::string text = ProvenanceText(provenance);
  select_.reset();
  select_.bind(1, text);
  if (select_.executeStep()) return select_.getColumn(0).getInt64();
  insert_.reset();
  insert_.bind(1, text);
  insert_.exec();
  return database_.getLastInsertRowid();
}

void BindSample(SQLite::Statement& statement, const Sample& sample, std::int64_t provenance_id) {
  constexpr int kFirst = 3;
  constexpr int kSize = kFirst + kKeyColumns;
  BindKey(statement, kFirst, /*ctas=*/kSize + 2, sample.key);
  statement.bind(kSize, sample.size);  // SQLite takes NaN for NULL.
  statement.bind(kSize + 1, TimesText(sample.times_s));
  statement.bind(kSize + 3, provenance_id);
}

const Provenance& Provenances::Of(const std::string& text) {
  const auto known = read_.find(text);
  return known != read_.end() ? known->second : read_.emplace(text, ProvenanceOf(text)).first->second;
}

Sample ReadSample(const SQLite::Statement& row, int first, Provenances& provenances) {
  const int size = first + kKeyColumns;
  return {.key = ReadKey(row, first, /*ctas=*/size + 3),
          .size = NumberOrNaN(row.getColumn(size)),
          .times_s = TimesOf(row.getColumn(size + 1).getString()),
          .provenance = provenances.Of(OwnOrShared(row.getColumn(size + 2), row.getColumn(size + 4)))};
}

}  // namespace moeplan::db
