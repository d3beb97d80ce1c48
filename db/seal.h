// A seal is a digest of the rows that make up one stored thing (a profile, a batch of samples, a plan, a run), kept
// beside them. SQLite checks the structure of its pages, not the values in them; a seal that does not fit tells that a
// value was changed. It covers columns as they are stored, so that a new wording of keys or JSON breaks no old seal.
//
// FNV-1a, 64 bits: every step is a bijection of the state, so one changed byte always changes it. Not for secrets.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace moeplan::db {

// The SQL of one kind of sealed thing.
struct SealSql {
  std::array<const char*, 2> head_and_parts;  // ?1 the id; columns by name, rows in a fixed order. Null: no parts.
  const char* read;                           // ?1 the id; gives the seal.
  const char* write;                          // ?1 the seal, ?2 the id.
};

// Computes the seal of what is stored under `id`, and stores it. Call it last, in the transaction that inserted.
void Seal(SQLite::Database& database, const SealSql& sql, std::int64_t id);

// Throws DamagedRow, naming `what`, when the rows under `id` are not those that were sealed.
void CheckSeal(SQLite::Database& database, const SealSql& sql, std::int64_t id, std::string_view what);

}  // namespace moeplan::db
