#include "db/seal.h"

#include <bit>
#include <string_view>

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
  void AddColumn(const SQLite::Column& column) {
    AddByte(static_cast<unsigned char>(column.getType()));
    if (column.isInteger()) AddWord(static_cast<std::uint64_t>(column.getInt64()));
    if (column.isFloat()) AddWord(std::bit_cast<std::uint64_t>(column.getDouble()));
    if (column.isText()) AddText({column.getText(), static_cast<size_t>(column.getBytes())});
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

void AddRows(Digest& digest, SQLite::Database& database, const char* query, std::int64_t id) {
  SQLite::Statement rows(database, query);
  rows.bind(1, id);
  while (rows.executeStep()) digest.AddRow(rows);
}

std::int64_t DigestOf(SQLite::Database& database, const SealedThing& thing, std::int64_t id) {
  Digest digest;
  AddRows(digest, database, thing.head, id);
  if (thing.parts != nullptr) AddRows(digest, database, thing.parts, id);
  return digest.Value();
}

}  // namespace

void Seal(SQLite::Database& database, const SealedThing& thing, std::int64_t id) {
  SQLite::Statement insert(database, kInsertSeal);
  insert.bind(1, thing.name);
  insert.bind(2, id);
  insert.bind(3, DigestOf(database, thing, id));
  insert.exec();
}

void CheckSeal(SQLite::Database& database, const SealedThing& thing, std::int64_t id) {
  SQLite::Statement select(database, kSelectSeal);
  select.bind(1, thing.name);
  select.bind(2, id);
  if (select.executeStep() && select.getColumn(0).getInt64() == DigestOf(database, thing, id)) return;
  throw DamagedRow(StrCat(thing.name, " ", id, " is not as it was stored"));
}

}  // namespace moeplan::db
