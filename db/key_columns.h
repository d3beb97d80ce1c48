// The eleven columns that name an operation, in this order: collective, algorithm, group_size, ranks_per_node,
// gather_group_size, shards, contention, bytes_per_element, kernel, model_dim, hidden_dim.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <string>
#include <variant>

#include "models/cost/profile.h"

namespace moeplan::db {

using OperationKey = std::variant<CollectiveKey, KernelKey>;

inline constexpr int kKeyColumns = 11;

// Binds the parameters from number `first` on; what the key lacks is NULL.
void BindKey(SQLite::Statement& statement, int first, const OperationKey& key);

// Reads the columns from number `first` on. Throws DamagedRow for a name that is none of ours.
OperationKey ReadKey(const SQLite::Statement& statement, int first);

std::string DescribeKey(const OperationKey& key);

}  // namespace moeplan::db
