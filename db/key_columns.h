// The columns that name an operation: eleven in this order, collective, algorithm, group_size, ranks_per_node,
// gather_group_size, shards, contention, bytes_per_element, kernel, model_dim, hidden_dim; and, as it came later
// (db/seal.h), ctas behind everything else in its row. `collective` and `kernel` also hold what later keys have more:
// a stride, a dispatcher, a shape.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <optional>

#include "models/cost/operation.h"

namespace moeplan::db {

inline constexpr int kKeyColumns = 11;

// Absent is NULL.
template <typename Value>
void BindOptional(SQLite::Statement& statement, int index, const std::optional<Value>& value) {
  if (value) {
    statement.bind(index, *value);
  } else {
    statement.bind(index);
  }
}

// Binds the eleven parameters from number `first` on, and number `ctas`; what the key lacks is NULL.
void BindKey(SQLite::Statement& statement, int first, int ctas, const CostKey& key);

// Reads the eleven columns from number `first` on, and number `ctas`. Throws DamagedRow for a name that is none of
// ours.
CostKey ReadKey(const SQLite::Statement& statement, int first, int ctas);

}  // namespace moeplan::db
