#include "planner/service/handlers/puts.h"

#include "planner/service/errors.h"

namespace moeplan::service {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;
constexpr size_t kRemembered = 4096;

}  // namespace

Status ValidateRequestId(const std::string& request_id) {
  if (!request_id.empty() && request_id.size() <= kMaxRequestIdBytes) return OkStatus();
  return error::BadRequestId(request_id.size(), kMaxRequestIdBytes);
}

std::optional<ProfileVersion> RecentPuts::Find(const std::string& request_id) const {
  const auto found = versions_.find(request_id);
  if (found == versions_.end()) return std::nullopt;
  return found->second;
}

void RecentPuts::Add(const std::string& request_id, const ProfileVersion& version) {
  if (!versions_.emplace(request_id, version).second) return;
  oldest_first_.push_back(request_id);
  if (oldest_first_.size() <= kRemembered) return;
  versions_.erase(oldest_first_.front());
  oldest_first_.pop_front();
}

}  // namespace moeplan::service
