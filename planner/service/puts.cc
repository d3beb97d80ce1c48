#include "planner/service/puts.h"

#include "planner/service/errors.h"
#include "planner/service/handlers/same_models.h"

namespace moeplan::service {
namespace {

constexpr size_t kMaxIdBytes = 128;

}  // namespace

Status ValidateRequestId(const std::string& request_id) {
  if (!request_id.empty() && request_id.size() <= kMaxIdBytes) return OkStatus();
  return error::BadRequestId(request_id.size(), kMaxIdBytes);
}

Status ValidateCalibration(const std::string& calibration) {
  return calibration.size() <= kMaxIdBytes ? OkStatus() : error::BadCalibration(calibration.size(), kMaxIdBytes);
}

StatusOr<ProfileVersion> SaveOnce(Store& store, const std::string& request, const Profile& profile,
                                  std::optional<std::int64_t> withdrawal) {
  const StatusOr<Profile> newest = store.LoadProfile({.name = profile.name});
  if (!newest.ok() && newest.status().code() != StatusCode::kNotFound) return newest.status();
  if (!newest.ok() || !SameModels(*newest, profile)) return store.SaveProfile(profile, request, withdrawal);
  const ProfileVersion version = {.name = newest->name, .version = newest->version, .created_at = newest->created_at};
  RETURN_IF_ERROR(store.RememberRequest(request, version));
  return version;
}

Puts::Turn::~Turn() {
  if (puts_ == nullptr) return;
  {
    const std::scoped_lock lock(puts_->mutex_);
    puts_->taken_.erase(name_);
  }
  puts_->released_.notify_all();
}

StatusOr<Puts::Turn> Puts::TakeTurn(const std::string& profile_name, std::stop_token stop) {
  std::unique_lock lock(mutex_);
  const auto is_free = [&] { return !taken_.contains(profile_name); };
  if (!released_.wait(lock, stop, is_free) || stop.stop_requested()) return error::CallerLeft();
  taken_.insert(profile_name);
  return Turn(*this, profile_name);
}

}  // namespace moeplan::service
