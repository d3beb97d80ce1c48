#include "db/seal.h"

#include <sqlite3.h>

#include <bit>
#include <string_view>

#include "db/guarded.h"
#include "models/fnv1a.h"
#include "models/text.h"

namespace moeplan::db {
namespace {

constexpr char kInsertSeal[] = "INSERT INTO seal (thing, id, digest) VALUES (?, ?, ?)";
constexpr char kDeleteSeal[] = "DELETE FROM seal WHERE thing = ? AND id = ?";
constexpr char kSelectSeal[] = "SELECT digest FROM seal WHERE thing = ? AND id = ?";

class Digest {
 public:
  void AddTypeAlone(int type) { AddType(type); }
  void Add(std::int64_t number) { AddType(SQLITE_INTEGER).AddWord(static_cast<std::uint64_t>(number)); }
  void Add(double number) { AddType(SQLITE_FLOAT).AddWord(std::bit_cast<std::uint64_t>(number)); }
  // With its length, so that the borders between texts count.
  void Add(std::string_view text) {
    AddType(SQLITE_TEXT);
    digest_.Add(text);
    AddWord(text.size());
  }

  // As SQLite stores integers.
  std::int64_t Value() const { return static_cast<std::int64_t>(digest_.value()); }

 private:
  Digest& AddType(int type) {
    digest_.Add(static_cast<unsigned char>(type));
    return *this;
  }
  void AddWord(std::uint64_t word) {
    for (int shift = 0; shift < 64; shift += 8) digest_.Add(static_cast<unsigned char>(word >> shift));
  }

  Fnv1a digest_;
};

}  // namespace

// All columns of whatever a query gives for an id. Of SQLite itself: SQLiteCpp makes an object of every look at a
// column, and reading samples looks at millions.
class SealedRows {
 public:
  SealedRows(SQLite::Database& database, const char* sql) : database_(database) {
    database.check(
        sqlite3_prepare_v3(database.getHandle(), sql, /*nByte=*/-1, SQLITE_PREPARE_PERSISTENT, &select_, nullptr));
  }
  SealedRows(SealedRows&&) = delete;
  ~SealedRows() { sqlite3_finalize(select_); }

  void AddTo(Digest& digest, std::int64_t id) {
    database_.check(sqlite3_bind_int64(select_, 1, id));
    int result = SQLITE_OK;
    while ((result = sqlite3_step(select_)) == SQLITE_ROW) AddRow(digest);
    sqlite3_reset(select_);
    if (result != SQLITE_DONE) database_.check(result);
  }

 private:
  void AddRow(Digest& digest) {
    int count = sqlite3_column_count(select_);
    while (count > 0 && sqlite3_column_type(select_, count - 1) == SQLITE_NULL) --count;
    for (int column = 0; column < count; ++column) AddColumn(digest, column);
  }

  void AddColumn(Digest& digest, int column) {
    switch (const int type = sqlite3_column_type(select_, column)) {
      case SQLITE_INTEGER: return digest.Add(std::int64_t{sqlite3_column_int64(select_, column)});
      case SQLITE_FLOAT: return digest.Add(sqlite3_column_double(select_, column));
      case SQLITE_TEXT: {
        const auto* const text = reinterpret_cast<const char*>(sqlite3_column_text(select_, column));
        return digest.Add(std::string_view(text, static_cast<size_t>(sqlite3_column_bytes(select_, column))));
      }
      default: return digest.AddTypeAlone(type);
    }
  }

  SQLite::Database& database_;
  sqlite3_stmt* select_ = nullptr;
};

namespace {

std::int64_t DigestOf(SealedRows& head, SealedRows* parts, std::int64_t id) {
  Digest digest;
  head.AddTo(digest, id);
  if (parts != nullptr) parts->AddTo(digest, id);
  return digest.Value();
}

std::unique_ptr<SealedRows> PartsOf(SQLite::Database& database, const SealedThing& thing) {
  return thing.parts == nullptr ? nullptr : std::make_unique<SealedRows>(database, thing.parts);
}

}  // namespace

void Seal(SQLite::Database& database, const SealedThing& thing, std::int64_t id) {
  SealedRows head(database, thing.head);
  const std::unique_ptr<SealedRows> parts = PartsOf(database, thing);
  SQLite::Statement insert(database, kInsertSeal);
  insert.bind(1, thing.name);
  insert.bind(2, id);
  insert.bind(3, DigestOf(head, parts.get(), id));
  insert.exec();
}

void Reseal(SQLite::Database& database, const SealedThing& thing, std::int64_t id) {
  SQLite::Statement remove(database, kDeleteSeal);
  remove.bind(1, thing.name);
  remove.bind(2, id);
  remove.exec();
  Seal(database, thing, id);
}

void CheckSeal(SQLite::Database& database, const SealedThing& thing, std::int64_t id) {
  SealChecker(database, thing).Check(id);
}

SealChecker::SealChecker(SQLite::Database& database, const SealedThing& thing)
    : thing_(thing),
      seal_(database, kSelectSeal),
      head_(std::make_unique<SealedRows>(database, thing.head)),
      parts_(PartsOf(database, thing)) {}

SealChecker::~SealChecker() = default;

void SealChecker::Check(std::int64_t id) {
  seal_.reset();
  seal_.bind(1, thing_.name);
  seal_.bind(2, id);
  if (seal_.executeStep() && seal_.getColumn(0).getInt64() == DigestOf(*head_, parts_.get(), id)) return;
  throw DamagedRow(StrCat(thing_.name, " ", id, " is not as it was stored"));
}

}  // namespace moeplan::db
