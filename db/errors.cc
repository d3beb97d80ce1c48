#include "db/errors.h"

#include <algorithm>
#include <string>

#include "models/text.h"

namespace moeplan::db::error {

namespace fs = std::filesystem;

namespace {

std::string Describe(const Cluster& cluster) {
  return StrCat("nodes ", cluster.nodes, ", gpusPerNode ", cluster.gpus_per_node, ", peakFlopsPerS ",
                cluster.peak_flops_per_s, ", deviceMemoryBytes ", cluster.device_memory_bytes);
}

}  // namespace

Status NewerVersion(const fs::path& path, int found, int supported) {
  return DataLoss(StrCat(path.string(), ": found schema version ", found, ", this moeplan knows versions up to ",
                         supported, "; upgrade moeplan, or use another database"));
}

Status AnotherProgram(const fs::path& path) {
  return InvalidInput(StrCat(path.string(),
                             ": found an SQLite database of another program, expected one of moeplan or a new file; "
                             "choose another path"));
}

Status NotADatabase(const fs::path& path) {
  return DataLoss(StrCat(path.string(),
                         ": found no SQLite database (another kind of file, or its head is damaged); "
                         "choose another path, or restore the file from a copy"));
}

Status Damaged(const fs::path& path, std::string_view detail) {
  std::string line(detail);  // SQLite's check reports over several.
  std::ranges::replace(line, '\n', ' ');
  return DataLoss(StrCat(path.string(), ": the database is damaged (", line,
                         "); restore it from a copy, or move it away and calibrate again"));
}

Status Locked(const fs::path& path) {
  return Unavailable(StrCat(path.string(),
                            ": the database is locked by another process; wait until it is done or stop "
                            "it, then try again"));
}

Status DiskFull(const fs::path& path) {
  return Unavailable(StrCat(path.string(), ": the disk is full; free some space, then try again"));
}

Status DiskFailed(const fs::path& path, std::string_view detail) {
  return Unavailable(StrCat(path.string(), ": the disk failed (", detail, ")"));
}

Status NoPath() { return InvalidInput("database: found an empty path, expected a file"); }

Status NoFile(const fs::path& path) {
  return NotFound(
      StrCat(path.string(), ": no such database; `moeplan calibrate ... --db ", path.string(), "` makes one"));
}

Status NoFolder(const fs::path& path) {
  return NotFound(StrCat(path.string(), ": its folder does not exist; create it, or choose another path"));
}

Status IsFolder(const fs::path& path) {
  return InvalidInput(StrCat(path.string(), ": found a folder, expected a database file"));
}

Status Denied(const fs::path& path, std::string_view action, std::string_view reason) {
  return PermissionDenied(StrCat(path.string(), ": may not be ", action, " (", reason, ")"));
}

Status CannotOpen(const fs::path& path, std::string_view reason) {
  return Unavailable(StrCat(path.string(), ": cannot be opened (", reason, ")"));
}

Status OpenedForReading(const fs::path& path) {
  return PermissionDenied(StrCat(path.string(), ": was opened for reading only"));
}

Status EmptyFile(const fs::path& path) {
  return NotFound(
      StrCat(path.string(), ": the database is empty; `moeplan calibrate ... --db ", path.string(), "` fills it"));
}

Status BackUpExists(const fs::path& to) {
  return InvalidInput(
      StrCat(to.string(), ": there is a file already, expected none; choose another path or move it away"));
}

Status BackUpFailed(const fs::path& to, std::string_view detail) {
  return Unavailable(StrCat(to.string(), ": the copy could not be made (", detail, ")"));
}

Status Unexpected(const fs::path& path, std::string_view detail) {
  return InternalError(StrCat(path.string(), ": ", detail));
}

Status NothingGiven(std::string_view field) {
  return InvalidInput(StrCat(field, ": found nothing, expected a text that is not empty"));
}

Status NotUtf8(std::string_view detail) {
  return InvalidInput(StrCat("provenance: found a text that is not UTF-8 (", detail, ")"));
}

Status TooBig(const fs::path& path) {
  return InvalidInput(StrCat(path.string(), ": found a text above SQLite's limit of a gigabyte"));
}

Status RequestReused(std::string_view request_id) {
  return InvalidInput(StrCat("request '", request_id,
                             "': was stored before with other samples; give every new batch a new request id"));
}

Status CalibrationDiffers(std::string_view calibration) {
  return InvalidInput(StrCat("calibration '", calibration,
                             "': found another name or cluster than in its first batch; give every measuring session a "
                             "calibration of its own"));
}

Status OtherCluster(std::string_view profile_name, const Cluster& found, const Cluster& expected) {
  return InvalidInput(StrCat("samples.cluster: found ", Describe(found), ", expected ", Describe(expected),
                             " like the earlier samples named '", profile_name,
                             "'; give another cluster another name"));
}

Status CalibrationReused(std::string_view request_id) {
  return InvalidInput(
      StrCat("request '", request_id, "': asked for another calibration before; give every new one a new request id"));
}

Status NoSamples(const fs::path& path) { return NotFound(StrCat(path.string(), ": holds no such samples")); }

Status NotOneSelector(int found) {
  return InvalidInput(StrCat("found ", found, " of requestId, agent and since, expected exactly one"));
}

Status WithdrawnMeanwhile() { return Unavailable("samples were withdrawn while they were fitted; fit again"); }

Status NoSamplesNamed(const fs::path& path, std::string_view name) {
  return NotFound(StrCat(path.string(), ": holds no samples named '", name, "'"));
}

Status BadPageSize(int found, int limit) {
  return InvalidInput(StrCat("pageSize: found ", found, ", expected 1 to ", limit));
}

Status BadPageToken(std::string_view found) {
  return InvalidInput(StrCat("pageToken: found '", found, "', expected the token of the page before"));
}

Status BadKeep(int found) { return InvalidInput(StrCat("keep: found ", found, ", expected at least 1")); }

Status BadProfileVersion(int found, int lowest) {
  return InvalidInput(StrCat("profileVersion: found ", found, ", expected at least ", lowest));
}

Status BadTime(std::string_view field, double found) {
  return InvalidInput(StrCat(field, ": found ", found, ", expected a finite number not below 0"));
}

Status NoProfile(const fs::path& path) {
  return NotFound(
      StrCat(path.string(), ": holds no profile yet; `moeplan calibrate ... --db ", path.string(), "` makes one"));
}

Status NoProfileNamed(const fs::path& path, std::string_view name) {
  return NotFound(StrCat(path.string(), ": holds no profile named '", name, "'; `moeplan profile list --db ",
                         path.string(), "` tells what is there"));
}

Status NoProfileVersion(const fs::path& path, std::string_view name, int version) {
  return NotFound(StrCat(path.string(), ": holds no version ", version, " of profile '", name,
                         "'; `moeplan profile list --db ", path.string(), "` tells what is there"));
}

Status NoCalibration(const fs::path& path, std::int64_t id) {
  return NotFound(StrCat(path.string(), ": holds no calibration ", id));
}

Status NoPlan(const fs::path& path, std::int64_t id) { return NotFound(StrCat(path.string(), ": holds no plan ", id)); }

Status NoRun(const fs::path& path, std::int64_t id) { return NotFound(StrCat(path.string(), ": holds no run ", id)); }

Status TokenExists(std::string_view name) {
  return InvalidInput(StrCat("name: found '", name, "', which is in use, expected a new one; or revoke that first"));
}

Status NoToken(const fs::path& path, std::string_view name) {
  return NotFound(StrCat(path.string(), ": holds no token named '", name, "' that is not revoked"));
}

}  // namespace moeplan::db::error
