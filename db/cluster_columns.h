// The columns of a cluster: nodes, gpus_per_node, peak_flops_per_s and device_memory_bytes, and the two that came
// later, node_link_bytes_per_s and network_bytes_per_s, which are NULL where nobody knows them.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include "models/workload/workload.h"

namespace moeplan::db {

inline constexpr int kClusterColumns = 6;

inline void BindRate(SQLite::Statement& statement, int at, double bytes_per_s) {
  if (bytes_per_s > 0) {
    statement.bind(at, bytes_per_s);
  } else {
    statement.bind(at);
  }
}

// All six, one behind the other.
inline void BindCluster(SQLite::Statement& statement, int first, const Cluster& cluster) {
  statement.bind(first, cluster.nodes);
  statement.bind(first + 1, cluster.gpus_per_node);
  statement.bind(first + 2, cluster.peak_flops_per_s);
  statement.bind(first + 3, cluster.device_memory_bytes);
  BindRate(statement, first + 4, cluster.node_link_bytes_per_s);
  BindRate(statement, first + 5, cluster.network_bytes_per_s);
}

// The first four from column `first` on, the rates from column `rates` on: where a seal covers a query, its newest
// columns are its last.
inline Cluster ReadCluster(const SQLite::Statement& row, int first, int rates) {
  return {.nodes = row.getColumn(first).getInt(),
          .gpus_per_node = row.getColumn(first + 1).getInt(),
          .peak_flops_per_s = row.getColumn(first + 2).getDouble(),
          .device_memory_bytes = row.getColumn(first + 3).getDouble(),
          .node_link_bytes_per_s = row.getColumn(rates).getDouble(),  // NULL reads as 0.
          .network_bytes_per_s = row.getColumn(rates + 1).getDouble()};
}

inline Cluster ReadCluster(const SQLite::Statement& row, int first) { return ReadCluster(row, first, first + 4); }

}  // namespace moeplan::db
