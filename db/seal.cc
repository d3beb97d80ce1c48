#include "db/seal.h"

#include <bit>
#include <string_view>
#include <utility>

#include "db/guarded.h"
#include "models/fnv1a.h"
#include "models/text.h"

namespace moeplan::db {
namespace {

constexpr char kInsertSeal[] = "INSERT INTO seal (thing, id, digest) VALUES (?, ?, ?)";
constexpr char kSelectSeal[] = "SELECT digest FROM seal WHERE thing = ? AND id = ?";

class Digest {
 public:
  void AddRow(SQLite::Statement& row) {
    int count = row.getColumnCount();
    while (count > 0 && row.getColumn(count - 1).isNull()) --count;
    for (int index = 0; index < count; ++index) AddColumn(row.getColumn(index));
  }

  // As SQLite stores integers.
  std::int64_t Value() const { return static_cast<std::int64_t>(digest_.value()); }

 private:
  // Each question about a column costs more than its digest does.
  void AddColumn(const SQLite::Column& column) {
    const int type = column.getType();
    AddByte(static_cast<unsigned char>(type));
    if (type == SQLite::INTEGER) AddWord(static_cast<std::uint64_t>(column.getInt64()));
    if (type == SQLite::FLOAT) AddWord(std::bit_cast<std::uint64_t>(column.getDouble()));
    if (type == SQLite::TEXT) {
      const char* const text = column.getText();
      AddText({text, static_cast<size_t>(column.getBytes())});
    }
  }

  // With its length, so that the borders between texts count.
  void AddText(std::string_view text) {
    for (const char letter : text) AddByte(static_cast<unsigned char>(letter));
    AddWord(text.size());
  }

  void AddWord(std::uint64_t word) {
    for (int shift = 0; shift < 64; shift += 8) AddByte(static_cast<unsigned char>(word >> shift));
  }

  void AddByte(unsigned char byte) { digest_.Add(byte); }

  Fnv1a digest_;
};

void AddRows(Digest& digest, SQLite::Statement& rows, std::int64_t id) {
  rows.reset();
  rows.bind(1, id);
  while (rows.executeStep()) digest.AddRow(rows);
}

std::int64_t DigestOf(SQLite::Statement& head, std::optional<SQLite::Statement>& parts, std::int64_t id) {
  Digest digest;
  AddRows(digest, head, id);
  if (parts) AddRows(digest, *parts, id);
  return digest.Value();
}

std::optional<SQLite::Statement> PartsOf(SQLite::Database& database, const SealedThing& thing) {
  if (thing.parts == nullptr) return std::nullopt;
  return std::optional<SQLite::Statement>(std::in_place, database, thing.parts);
}

}  // namespace

void Seal(SQLite::Database& database, const SealedThing& thing, std::int64_t id) {
  SQLite::Statement head(database, thing.head);
  std::optional<SQLite::Statement> parts = PartsOf(database, thing);
  SQLite::Statement insert(database, kInsertSeal);
  insert.bind(1, thing.name);
  insert.bind(2, id);
  insert.bind(3, DigestOf(head, parts, id));
  insert.exec();
}

void CheckSeal(SQLite::Database& database, const SealedThing& thing, std::int64_t id) {
  SealChecker(database, thing).Check(id);
}

SealChecker::SealChecker(SQLite::Database& database, const SealedThing& thing)
    : thing_(thing), seal_(database, kSelectSeal), head_(database, thing.head), parts_(PartsOf(database, thing)) {}

void SealChecker::Check(std::int64_t id) {
  seal_.reset();
  seal_.bind(1, thing_.name);
  seal_.bind(2, id);
  if (seal_.executeStep() && seal_.getColumn(0).getInt64() == DigestOf(head_, parts_, id)) return;
  throw DamagedRow(StrCat(thing_.name, " ", id, " is not as it was stored"));
}

}  // namespace moeplan::db
