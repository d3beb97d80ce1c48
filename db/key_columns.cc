#include "db/key_columns.h"

#include <string>
#include <string_view>
#include <variant>

#include "db/guarded.h"
#include "models/text.h"

namespace moeplan::db {
namespace {

enum KeyColumn {
  kCollective,
  kAlgorithm,
  kGroupSize,
  kRanksPerNode,
  kGatherGroupSize,
  kShards,
  kContention,
  kBytesPerElement,
  kKernel,
  kModelDim,
  kHiddenDim,
};
static_assert(kHiddenDim + 1 == kKeyColumns);

template <typename Enum>
void BindName(SQLite::Statement& statement, int index, Enum value) {
  statement.bind(index, std::string(Name(value)));
}

void BindNulls(SQLite::Statement& statement, int first) {
  for (int column = 0; column < kKeyColumns; ++column) statement.bind(first + column);
}

void BindFields(SQLite::Statement& statement, int first, const CollectiveKey& key) {
  BindName(statement, first + kCollective, key.collective);
  BindName(statement, first + kAlgorithm, key.algorithm);
  statement.bind(first + kGroupSize, key.group.size);
  statement.bind(first + kRanksPerNode, key.group.ranks_per_node);
  statement.bind(first + kGatherGroupSize, key.gather_group_size);
  statement.bind(first + kShards, key.shards);
}

void BindFields(SQLite::Statement& statement, int first, const KernelKey& key) {
  BindName(statement, first + kKernel, key.kernel);
  BindOptional(statement, first + kModelDim, key.model_dim);
  BindOptional(statement, first + kHiddenDim, key.hidden_dim);
}

template <typename Enum>
Enum ReadName(const SQLite::Column& column) {
  const std::string found = column.getString();
  if (const auto value = NamedValue<Enum>(found)) return *value;
  throw DamagedRow(StrCat("found the name '", found, "' in a key, which no extension that is loaded adds"));
}

std::optional<int> ReadOptional(const SQLite::Column& column) {
  if (column.isNull()) return std::nullopt;
  return column.getInt();
}

CollectiveKey ReadCollectiveKey(const SQLite::Statement& row, int first, int ctas) {
  return {.collective = ReadName<Collective>(row.getColumn(first + kCollective)),
          .algorithm = ReadName<AllToAllAlgorithm>(row.getColumn(first + kAlgorithm)),
          .group = {.size = row.getColumn(first + kGroupSize).getInt(),
                    .ranks_per_node = row.getColumn(first + kRanksPerNode).getInt()},
          .gather_group_size = row.getColumn(first + kGatherGroupSize).getInt(),
          .shards = row.getColumn(first + kShards).getInt(),
          .contention = ReadName<Contention>(row.getColumn(first + kContention)),
          .bytes_per_element = ReadOptional(row.getColumn(first + kBytesPerElement)),
          .ctas = row.getColumn(ctas).getInt()};  // NULL reads as 0.
}

KernelKey ReadKernelKey(const SQLite::Statement& row, int first, int ctas) {
  return {.kernel = ReadName<Kernel>(row.getColumn(first + kKernel)),
          .contention = ReadName<Contention>(row.getColumn(first + kContention)),
          .bytes_per_element = ReadOptional(row.getColumn(first + kBytesPerElement)),
          .model_dim = ReadOptional(row.getColumn(first + kModelDim)),
          .hidden_dim = ReadOptional(row.getColumn(first + kHiddenDim)),
          .ctas = row.getColumn(ctas).getInt()};
}

}  // namespace

void BindKey(SQLite::Statement& statement, int first, int ctas, const CostKey& operation) {
  BindNulls(statement, first);
  std::visit(
      [&](const auto& key) {
        BindFields(statement, first, key);
        BindName(statement, first + kContention, key.contention);
        BindOptional(statement, first + kBytesPerElement, key.bytes_per_element);
        BindOptional(statement, ctas, key.ctas == 0 ? std::nullopt : std::optional(key.ctas));
      },
      operation);
}

CostKey ReadKey(const SQLite::Statement& row, int first, int ctas) {
  if (row.getColumn(first + kCollective).isNull()) return ReadKernelKey(row, first, ctas);
  return ReadCollectiveKey(row, first, ctas);
}

}  // namespace moeplan::db
