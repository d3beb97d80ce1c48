#include "db/profile_rows.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "db/cluster_columns.h"
#include "db/errors.h"
#include "db/key_columns.h"
#include "db/page.h"
#include "db/seal.h"
#include "db/value_json.h"
#include "models/text.h"

namespace moeplan::db {
namespace {

constexpr char kSelectNextVersion[] = "SELECT coalesce(max(version), 0) + 1 FROM profile WHERE name = ?";
constexpr char kInsertProfile[] = R"sql(
INSERT INTO profile (name, version, created_at, nodes, gpus_per_node, peak_flops_per_s, device_memory_bytes,
                     node_link_bytes_per_s, network_bytes_per_s, last_batch_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, max(coalesce((SELECT max(id) FROM sample_batch), 0),
                                       coalesce((SELECT max(last_batch_id) FROM profile), 0))))sql";
constexpr char kInsertModel[] = R"sql(
INSERT INTO cost_model (profile_id, ordinal, collective, algorithm, group_size, ranks_per_node, gather_group_size,
                        shards, contention, bytes_per_element, kernel, model_dim, hidden_dim, model, ctas)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?))sql";

constexpr char kSelectProfilePage[] = R"sql(
SELECT id, name, version, created_at
FROM profile
WHERE id < ?1 AND (?3 IS NULL OR name = ?3)
  AND (NOT ?4 OR version = (SELECT max(version) FROM profile AS other WHERE other.name = profile.name))
ORDER BY id DESC LIMIT ?2)sql";
constexpr char kSelectNewestName[] = "SELECT name FROM profile ORDER BY id DESC LIMIT 1";
constexpr char kSelectNewestVersion[] = "SELECT max(version) FROM profile WHERE name = ?";
constexpr char kSelectProfileId[] = "SELECT id FROM profile WHERE name = ? AND version = ?";
constexpr char kInsertRequest[] = "INSERT INTO profile_request (request_id, profile_id) VALUES (?, ?)";
constexpr char kSelectVersionOfRequest[] = R"sql(
SELECT name, version, created_at
FROM profile_request JOIN profile ON profile.id = profile_id
WHERE request_id = ?)sql";

int NextVersion(SQLite::Database& database, const std::string& name) {
  SQLite::Statement select(database, kSelectNextVersion);
  select.bind(1, name);
  select.executeStep();
  return select.getColumn(0).getInt();
}

std::int64_t InsertProfileRow(SQLite::Database& database, const ProfileVersion& version, const Cluster& cluster) {
  SQLite::Statement insert(database, kInsertProfile);
  insert.bind(1, version.name);
  insert.bind(2, version.version);
  insert.bind(3, version.created_at);
  BindCluster(insert, 4, cluster);
  insert.exec();
  return database.getLastInsertRowid();
}

void InsertModel(SQLite::Statement& insert, int ordinal, const CostKey& key, const CostModel& model) {
  insert.bind(2, ordinal);
  BindKey(insert, 3, /*ctas=*/4 + kKeyColumns, key);
  insert.bind(3 + kKeyColumns, CostModelText(model));
  insert.exec();
  insert.reset();
}

void InsertModels(SQLite::Database& database, std::int64_t profile_id, const Profile& profile) {
  SQLite::Statement insert(database, kInsertModel);
  insert.bind(1, profile_id);
  int ordinal = 0;
  for (const CollectiveModel& entry : profile.collectives) InsertModel(insert, ordinal++, entry.key, entry.model);
  for (const KernelModel& entry : profile.kernels) InsertModel(insert, ordinal++, entry.key, entry.model);
}

std::optional<std::string> NewestName(SQLite::Database& database) {
  SQLite::Statement select(database, kSelectNewestName);
  if (!select.executeStep()) return std::nullopt;
  return select.getColumn(0).getString();
}

std::optional<int> NewestVersion(SQLite::Database& database, const std::string& name) {
  SQLite::Statement select(database, kSelectNewestVersion);
  select.bind(1, name);
  select.executeStep();
  if (select.getColumn(0).isNull()) return std::nullopt;
  return select.getColumn(0).getInt();
}

std::optional<std::int64_t> ProfileIdOf(SQLite::Database& database, const std::string& name, int version) {
  SQLite::Statement select(database, kSelectProfileId);
  select.bind(1, name);
  select.bind(2, version);
  if (!select.executeStep()) return std::nullopt;
  return select.getColumn(0).getInt64();
}

StatusOr<std::int64_t> Resolve(SQLite::Database& database, const std::filesystem::path& path,
                               const ProfileSelection& selection) {
  if (selection.version && *selection.version < 1) return error::BadProfileVersion(*selection.version, /*lowest=*/1);
  const std::optional<std::string> name = selection.name ? selection.name : NewestName(database);
  if (!name) return error::NoProfile(path);
  const std::optional<int> newest = NewestVersion(database, *name);
  if (!newest) return error::NoProfileNamed(path, *name);
  const int version = selection.version.value_or(*newest);
  const std::optional<std::int64_t> id = ProfileIdOf(database, *name, version);
  if (!id) return error::NoProfileVersion(path, *name, version);
  return *id;
}

Profile SelectHead(SQLite::Database& database, std::int64_t id) {
  SQLite::Statement select(database, kSelectProfile);
  select.bind(1, id);
  select.executeStep();
  return {.name = select.getColumn(0).getString(),
          .version = select.getColumn(1).getInt(),
          .created_at = select.getColumn(2).getString(),
          .cluster = ReadCluster(select, 3, /*rates=*/8)};
}

void AddModel(Profile& profile, const CostKey& operation, CostModel model) {
  if (const auto* key = std::get_if<CollectiveKey>(&operation)) {
    profile.collectives.push_back({*key, std::move(model)});
  } else {
    profile.kernels.push_back({std::get<KernelKey>(operation), std::move(model)});
  }
}

void SelectModels(SQLite::Database& database, std::int64_t id, Profile& profile) {
  SQLite::Statement select(database, kSelectModels);
  select.bind(1, id);
  while (select.executeStep()) {
    AddModel(profile, ReadKey(select, 0, /*ctas=*/1 + kKeyColumns),
             CostModelOf(select.getColumn(kKeyColumns).getString()));
  }
}

}  // namespace

ProfileVersion InsertProfile(SQLite::Database& database, const Profile& profile, const std::string& created_at) {
  const ProfileVersion version = {
      .name = profile.name, .version = NextVersion(database, profile.name), .created_at = created_at};
  const std::int64_t id = InsertProfileRow(database, version, profile.cluster);
  InsertModels(database, id, profile);
  Seal(database, kSealedProfile, id);
  return version;
}

StatusOr<ProfilePage> SelectProfilePage(SQLite::Database& database, const PageRequest& request,
                                        const ProfileFilter& filter) {
  ASSIGN_OR_RETURN(const std::int64_t below, FirstIdAbove(request));
  SQLite::Statement select(database, kSelectProfilePage);
  select.bind(1, below);
  select.bind(2, request.size + 1);
  if (filter.name) select.bind(3, *filter.name);
  select.bind(4, filter.newest ? 1 : 0);
  ProfilePage page;
  page.next_token = ReadPage(select, request.size, [&page](const SQLite::Statement& row) {
    page.profiles.push_back({.name = row.getColumn(1).getString(),
                             .version = row.getColumn(2).getInt(),
                             .created_at = row.getColumn(3).getString()});
  });
  return page;
}

StatusOr<Profile> SelectProfile(SQLite::Database& database, const std::filesystem::path& path,
                                const ProfileSelection& selection) {
  ASSIGN_OR_RETURN(const std::int64_t id, Resolve(database, path, selection));
  CheckSeal(database, kSealedProfile, id);
  Profile profile = SelectHead(database, id);
  SelectModels(database, id, profile);
  return profile;
}

std::int64_t SelectLatestProfile(SQLite::Database& database) {
  return database.execAndGet("SELECT coalesce(max(id), 0) FROM profile").getInt64();
}

Status InsertRequest(SQLite::Database& database, const std::filesystem::path& path, const std::string& request_id,
                     const ProfileVersion& became) {
  const std::optional<std::int64_t> id = ProfileIdOf(database, became.name, became.version);
  if (!id) return error::NoProfileVersion(path, became.name, became.version);
  SQLite::Statement insert(database, kInsertRequest);
  insert.bind(1, request_id);
  insert.bind(2, *id);
  insert.exec();
  return OkStatus();
}

std::optional<ProfileVersion> SelectVersionOfRequest(SQLite::Database& database, const std::string& request_id) {
  SQLite::Statement select(database, kSelectVersionOfRequest);
  select.bind(1, request_id);
  if (!select.executeStep()) return std::nullopt;
  return ProfileVersion{.name = select.getColumn(0).getString(),
                        .version = select.getColumn(1).getInt(),
                        .created_at = select.getColumn(2).getString()};
}

bool HasProfile(SQLite::Database& database, const std::string& name, int version) {
  return ProfileIdOf(database, name, version).has_value();
}

}  // namespace moeplan::db
