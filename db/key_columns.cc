#include "db/key_columns.h"

#include <algorithm>
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

// Two columns hold more than a name, so that databases of every version have the same columns: behind a collective's
// name stand its stride and its dispatcher where it has them ("ALL_GATHER stride 4"), behind a kernel's its shape, as
// Describe writes them.
// Returns the text that stands between the two where a key has no group yet.
std::string NoGroup(Collective collective) {
  return StrCat(" groupSize 1 ranksPerNode 1",
                collective == Collective::kAllToAllAllGather ? " gatherGroupSize 0 shards 0" : "");
}

std::string NameAndMore(const CollectiveKey& key) {
  const CollectiveKey more = {
      .collective = key.collective, .stride = key.stride, .dispatcher = key.dispatcher, .transport = key.transport};
  const std::string name(Name(key.collective));
  return name + Describe(more).substr(name.size() + NoGroup(key.collective).size());
}
std::string NameAndShape(const KernelKey& key) { return Describe(KernelKey{.kernel = key.kernel, .shape = key.shape}); }

[[noreturn]] void ThrowUnknownName(const std::string& found) {
  throw DamagedRow(StrCat("found the name '", found, "' in a key, which no extension that is loaded adds"));
}

void BindNulls(SQLite::Statement& statement, int first) {
  for (int column = 0; column < kKeyColumns; ++column) statement.bind(first + column);
}

void BindFields(SQLite::Statement& statement, int first, const CollectiveKey& key) {
  statement.bind(first + kCollective, NameAndMore(key));
  BindName(statement, first + kAlgorithm, key.algorithm);
  statement.bind(first + kGroupSize, key.group.size);
  statement.bind(first + kRanksPerNode, key.group.ranks_per_node);
  statement.bind(first + kGatherGroupSize, key.gather_group_size);
  statement.bind(first + kShards, key.shards);
}

void BindFields(SQLite::Statement& statement, int first, const KernelKey& key) {
  statement.bind(first + kKernel, NameAndShape(key));
  BindOptional(statement, first + kModelDim, key.model_dim);
  BindOptional(statement, first + kHiddenDim, key.hidden_dim);
}

template <typename Enum>
Enum ReadName(const SQLite::Column& column) {
  const std::string found = column.getString();
  if (const auto value = NamedValue<Enum>(found)) return *value;
  ThrowUnknownName(found);
}

// The collective, its stride and its dispatcher alone.
CollectiveKey ReadNameAndMore(const SQLite::Column& column) {
  const std::string found = column.getString();
  if (const auto collective = NamedValue<Collective>(found)) return {.collective = *collective};
  const size_t end = std::min(found.find(' '), found.size());
  const auto collective = NamedValue<Collective>(found.substr(0, end));
  if (!collective) ThrowUnknownName(found);
  const auto key = NamedCost(StrCat(Name(*collective), NoGroup(*collective), found.substr(end)));
  if (!key || !std::holds_alternative<CollectiveKey>(*key)) ThrowUnknownName(found);
  return std::get<CollectiveKey>(*key);
}

// The kernel and the shape alone.
KernelKey ReadNameAndShape(const SQLite::Column& column) {
  const std::string found = column.getString();
  if (const auto kernel = NamedValue<Kernel>(found)) return {.kernel = *kernel};  // Most have no shape.
  const auto key = NamedCost(found);
  if (!key || !std::holds_alternative<KernelKey>(*key)) ThrowUnknownName(found);
  return std::get<KernelKey>(*key);
}

std::optional<int> ReadOptional(const SQLite::Column& column) {
  if (column.isNull()) return std::nullopt;
  return column.getInt();
}

CollectiveKey ReadCollectiveKey(const SQLite::Statement& row, int first, int ctas) {
  CollectiveKey key = ReadNameAndMore(row.getColumn(first + kCollective));
  key.algorithm = ReadName<AllToAllAlgorithm>(row.getColumn(first + kAlgorithm));
  key.group = {.size = row.getColumn(first + kGroupSize).getInt(),
               .ranks_per_node = row.getColumn(first + kRanksPerNode).getInt()};
  key.gather_group_size = row.getColumn(first + kGatherGroupSize).getInt();
  key.shards = row.getColumn(first + kShards).getInt();
  key.contention = ReadName<Contention>(row.getColumn(first + kContention));
  key.bytes_per_element = ReadOptional(row.getColumn(first + kBytesPerElement));
  key.ctas = row.getColumn(ctas).getInt();  // NULL reads as 0.
  return key;
}

KernelKey ReadKernelKey(const SQLite::Statement& row, int first, int ctas) {
  KernelKey key = ReadNameAndShape(row.getColumn(first + kKernel));
  key.contention = ReadName<Contention>(row.getColumn(first + kContention));
  key.bytes_per_element = ReadOptional(row.getColumn(first + kBytesPerElement));
  key.model_dim = ReadOptional(row.getColumn(first + kModelDim));
  key.hidden_dim = ReadOptional(row.getColumn(first + kHiddenDim));
  key.ctas = row.getColumn(ctas).getInt();
  return key;
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
