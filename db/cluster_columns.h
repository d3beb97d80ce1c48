// The four columns of a cluster, in this order: nodes, gpus_per_node, peak_flops_per_s, device_memory_bytes.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include "models/workload/workload.h"

namespace moeplan::db {

inline constexpr int kClusterColumns = 4;

inline void BindCluster(SQLite::Statement& statement, int first, const Cluster& cluster) {
  statement.bind(first, cluster.nodes);
  statement.bind(first + 1, cluster.gpus_per_node);
  statement.bind(first + 2, cluster.peak_flops_per_s);
  statement.bind(first + 3, cluster.device_memory_bytes);
}

inline Cluster ReadCluster(const SQLite::Statement& row, int first) {
  return {.nodes = row.getColumn(first).getInt(),
          .gpus_per_node = row.getColumn(first + 1).getInt(),
          .peak_flops_per_s = row.getColumn(first + 2).getDouble(),
          .device_memory_bytes = row.getColumn(first + 3).getDouble()};
}

}  // namespace moeplan::db
