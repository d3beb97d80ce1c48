#include "db/overview_rows.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "db/cluster_columns.h"
#include "db/key_columns.h"
#include "db/page.h"
#include "db/profile_rows.h"
#include "db/seal.h"

namespace moeplan::db {
namespace {

constexpr char kSelectNewestVersions[] = R"sql(
SELECT id, name, version, created_at, nodes, gpus_per_node, peak_flops_per_s, device_memory_bytes,
       node_link_bytes_per_s, network_bytes_per_s,
       (SELECT count(*) FROM profile AS other WHERE other.name = profile.name)
FROM profile
WHERE id < ?1 AND version = (SELECT max(version) FROM profile AS other WHERE other.name = profile.name)
ORDER BY id DESC LIMIT ?2)sql";
// As CostModelText writes them.
constexpr char kSelectErrors[] = R"sql(
SELECT collective, algorithm, group_size, ranks_per_node, gather_group_size, shards, contention, bytes_per_element,
       kernel, model_dim, hidden_dim, json_extract(model, '$.fit.relativeErrorP50'),
       json_extract(model, '$.fit.relativeErrorP95'), ctas
FROM cost_model WHERE profile_id = ? ORDER BY ordinal)sql";
constexpr char kCountSamples[] = R"sql(
SELECT coalesce(sum(samples), 0), max(received_at) FILTER (WHERE samples > 0)
FROM (SELECT received_at, (SELECT count(*) FROM sample WHERE batch_id = sample_batch.id) AS samples
      FROM calibration JOIN sample_batch ON calibration_id = calibration.id
      WHERE profile_name = ?))sql";
constexpr char kCountRejected[] = R"sql(
SELECT count(*) FROM calibration
  JOIN sample_batch ON calibration_id = calibration.id
  JOIN rejected_sample ON batch_id = sample_batch.id
WHERE profile_name = ?)sql";

// NULL where nothing was fitted, a text where it is not finite.
double ErrorOf(const SQLite::Column& column) {
  return column.isText() ? std::numeric_limits<double>::infinity() : column.getDouble();
}

void AddErrors(SQLite::Statement& select, std::int64_t profile_id, ProfileOverview& overview) {
  constexpr int kP50 = kKeyColumns, kP95 = kP50 + 1, kCtas = kP95 + 1;
  select.reset();
  select.bind(1, profile_id);
  while (select.executeStep()) {
    const CostKey key = ReadKey(select, 0, kCtas);
    ++(std::holds_alternative<CollectiveKey>(key) ? overview.collectives : overview.kernels);
    if (select.isColumnNull(kP50)) continue;
    overview.errors.push_back({.key = key,
                               .relative_error_p50 = ErrorOf(select.getColumn(kP50)),
                               .relative_error_p95 = ErrorOf(select.getColumn(kP95))});
  }
}

void CountSamples(SQLite::Statement& samples, SQLite::Statement& rejected, ProfileOverview& overview) {
  samples.reset();
  samples.bind(1, overview.newest.name);
  samples.executeStep();
  overview.samples = samples.getColumn(0).getInt();
  overview.last_sample_at = samples.getColumn(1).getString();  // NULL reads as "".
  rejected.reset();
  rejected.bind(1, overview.newest.name);
  rejected.executeStep();
  overview.rejected_samples = rejected.getColumn(0).getInt();
}

}  // namespace

StatusOr<OverviewPage> SelectOverviewPage(SQLite::Database& database, const PageRequest& request) {
  ASSIGN_OR_RETURN(const std::int64_t below, FirstIdAbove(request));
  SQLite::Statement select(database, kSelectNewestVersions), errors(database, kSelectErrors);
  SQLite::Statement samples(database, kCountSamples), rejected(database, kCountRejected);
  SealChecker seals(database, kSealedProfile);
  select.bind(1, below);
  select.bind(2, request.size + 1);
  OverviewPage page;
  page.next_token = ReadPage(select, request.size, [&](const SQLite::Statement& row) {
    const std::int64_t id = row.getColumn(0).getInt64();
    seals.Check(id);
    ProfileOverview& overview = page.profiles.emplace_back();
    overview.newest = {.name = row.getColumn(1).getString(),
                       .version = row.getColumn(2).getInt(),
                       .created_at = row.getColumn(3).getString()};
    overview.cluster = ReadCluster(row, 4);
    overview.versions = row.getColumn(4 + kClusterColumns).getInt();
    AddErrors(errors, id, overview);
    CountSamples(samples, rejected, overview);
  });
  return page;
}

}  // namespace moeplan::db
