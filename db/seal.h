// A seal is a digest of the rows that make up one stored thing (a profile, a batch of samples, a plan, a run), kept
// in the table `seal`. SQLite checks the structure of its pages, not the values in them; a seal that does not fit tells
// that a value was changed. It covers columns as they are stored, so that a new wording of keys or JSON breaks no old
// seal. Nor does a later step that adds a column: the step gives NULL to what is there, a query names the new column
// last, and a row counts up to its last value that is not NULL.
//
// FNV-1a (models/fnv1a.h): one changed byte always changes it. Not for secrets.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <memory>

namespace moeplan::db {

// One kind of sealed thing, and the SQL that gives its rows.
struct SealedThing {
  const char* name;             // As the table `seal` and messages call it.
  const char* head;             // ?1 the id; columns by name.
  const char* parts = nullptr;  // Likewise, in a fixed order. Null: the head is all.
};

// Seals what is stored under `id`. Call it last, in the transaction that inserted.
void Seal(SQLite::Database& database, const SealedThing& thing, std::int64_t id);

// Seals anew what was changed on purpose. Check the seal before the change: a value that flipped must not be sealed.
void Reseal(SQLite::Database& database, const SealedThing& thing, std::int64_t id);

// Throws DamagedRow, naming the thing, when the rows under `id` are not those that were sealed.
void CheckSeal(SQLite::Database& database, const SealedThing& thing, std::int64_t id);

class SealedRows;

// The same for many ids of one kind: its queries are prepared once.
class SealChecker {
 public:
  SealChecker(SQLite::Database& database, const SealedThing& thing);
  ~SealChecker();

  void Check(std::int64_t id);

 private:
  const SealedThing thing_;
  SQLite::Statement seal_;
  const std::unique_ptr<SealedRows> head_;
  const std::unique_ptr<SealedRows> parts_;  // Null: the thing has none.
};

}  // namespace moeplan::db
