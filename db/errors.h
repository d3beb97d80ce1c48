// Every error of the store, worded once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "models/status.h"
#include "models/workload/workload.h"

namespace moeplan::db::error {

// The file.
Status NewerVersion(const std::filesystem::path& path, int found, int supported);
Status AnotherProgram(const std::filesystem::path& path);
Status NotADatabase(const std::filesystem::path& path);
Status Damaged(const std::filesystem::path& path, std::string_view detail);
Status Locked(const std::filesystem::path& path);
Status DiskFull(const std::filesystem::path& path);
Status DiskFailed(const std::filesystem::path& path, std::string_view detail);
Status NoPath();
Status NoFile(const std::filesystem::path& path);
Status NoFolder(const std::filesystem::path& path);
Status IsFolder(const std::filesystem::path& path);
Status Denied(const std::filesystem::path& path, std::string_view action, std::string_view reason);
Status CannotOpen(const std::filesystem::path& path, std::string_view reason);
Status OpenedForReading(const std::filesystem::path& path);
Status EmptyFile(const std::filesystem::path& path);
Status BackUpExists(const std::filesystem::path& to);
Status BackUpFailed(const std::filesystem::path& to, std::string_view detail);
Status Unexpected(const std::filesystem::path& path, std::string_view detail);

// What is asked of it.
Status NothingGiven(std::string_view field);
Status NotUtf8(std::string_view detail);
Status TooBig(const std::filesystem::path& path);
Status RequestReused(std::string_view request_id);
Status CalibrationDiffers(std::string_view calibration);
Status OtherCluster(std::string_view profile_name, const Cluster& found, const Cluster& expected);
Status CalibrationReused(std::string_view request_id);
Status NoSamples(const std::filesystem::path& path);
Status NotOneSelector(int found);
Status WithdrawnMeanwhile();
Status NoSamplesNamed(const std::filesystem::path& path, std::string_view name);
Status BadPageSize(int found, int limit);
Status BadPageToken(std::string_view found);
Status BadKeep(int found);
Status BadProfileVersion(int found, int lowest);
Status BadTime(std::string_view field, double found);
Status NoProfile(const std::filesystem::path& path);
Status NoProfileNamed(const std::filesystem::path& path, std::string_view name);
Status NoProfileVersion(const std::filesystem::path& path, std::string_view name, int version);
Status NoCalibration(const std::filesystem::path& path, std::int64_t id);
Status NoPlan(const std::filesystem::path& path, std::int64_t id);
Status NoRun(const std::filesystem::path& path, std::int64_t id);
Status TokenExists(std::string_view name);
Status NoToken(const std::filesystem::path& path, std::string_view name);

}  // namespace moeplan::db::error
