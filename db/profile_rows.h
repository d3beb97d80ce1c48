// Profiles as rows. Call inside a transaction and inside Guarded: SQLite's and nlohmann's exceptions pass through.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <filesystem>
#include <optional>
#include <string>

#include "db/seal.h"
#include "db/store.h"
#include "models/status.h"

namespace moeplan::db {

inline constexpr char kSelectProfile[] = R"sql(
SELECT name, version, created_at, nodes, gpus_per_node, peak_flops_per_s, device_memory_bytes, last_batch_id,
       node_link_bytes_per_s, network_bytes_per_s
FROM profile WHERE id = ?)sql";
inline constexpr char kSelectModels[] = R"sql(
SELECT collective, algorithm, group_size, ranks_per_node, gather_group_size, shards, contention, bytes_per_element,
       kernel, model_dim, hidden_dim, model, ctas
FROM cost_model WHERE profile_id = ? ORDER BY ordinal)sql";
inline constexpr SealedThing kSealedProfile = {.name = "profile", .head = kSelectProfile, .parts = kSelectModels};

// Requires a validated profile with a name.
ProfileVersion InsertProfile(SQLite::Database& database, const Profile& profile, const std::string& created_at);

StatusOr<ProfilePage> SelectProfilePage(SQLite::Database& database, const PageRequest& page,
                                        const ProfileFilter& filter);

StatusOr<Profile> SelectProfile(SQLite::Database& database, const std::filesystem::path& path,
                                const ProfileSelection& selection);

// Of the profile saved last; 0 when there is none.
std::int64_t SelectLatestProfile(SQLite::Database& database);

// Remembers that a request, new to this table, became that version; kNotFound when there is no such version.
Status InsertRequest(SQLite::Database& database, const std::filesystem::path& path, const std::string& request_id,
                     const ProfileVersion& became);
std::optional<ProfileVersion> SelectVersionOfRequest(SQLite::Database& database, const std::string& request_id);

bool HasProfile(SQLite::Database& database, const std::string& name, int version);

}  // namespace moeplan::db
