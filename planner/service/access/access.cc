#include "planner/service/access/access.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "models/time_text.h"
#include "planner/service/access/token.h"
#include "planner/service/errors.h"
#include "proto/grpc_status.h"

namespace moeplan::service {
namespace {

struct Grant {
  std::string name;
  std::optional<Role> role;  // Absent: of a newer moeplan; reaches nothing.
  std::string expires_at;
};

}  // namespace

struct Access::Tokens {
  bool ever = false;
  std::map<std::string, Grant, std::less<>> by_digest;  // In hexadecimal.
};

Access::Access(std::function<Clock::time_point()> now)
    : now_(std::move(now)), tokens_(std::make_shared<const Tokens>()) {}

void Access::Set(const std::vector<TokenRecord>& records) {
  auto tokens = std::make_shared<Tokens>();
  tokens->ever = !records.empty();
  for (const TokenRecord& record : records) {
    if (!record.revoked_at.empty()) continue;
    tokens->by_digest[record.sha256] = {record.name, RoleNamed(record.role), record.expires_at};
  }
  const std::scoped_lock lock(mutex_);
  asks_for_tokens_ = tokens->ever;
  tokens_ = std::move(tokens);
}

std::shared_ptr<const Access::Tokens> Access::tokens() const {
  const std::scoped_lock lock(mutex_);
  return tokens_;
}

std::string Access::NameOf(std::string_view token) const {
  const std::shared_ptr<const Tokens> known = tokens();
  if (token.empty() || !known->ever) return "";
  const auto found = known->by_digest.find(HexDigestOf(token));
  return found == known->by_digest.end() ? "" : found->second.name;
}

bool Access::HasToken(const std::string& name) const {
  const std::shared_ptr<const Tokens> known = tokens();
  return std::ranges::any_of(known->by_digest, [&](const auto& entry) { return entry.second.name == name; });
}

std::optional<grpc::Status> Access::Refuse(std::string_view token, Role role) const {
  const std::shared_ptr<const Tokens> known = tokens();
  if (!known->ever) return std::nullopt;
  if (token.empty()) return error::NoToken();
  const auto found = known->by_digest.find(HexDigestOf(token));
  if (found == known->by_digest.end()) return error::UnknownToken();
  const Grant& grant = found->second;
  // RFC 3339 in UTC sorts by time.
  if (!grant.expires_at.empty() && grant.expires_at <= Rfc3339(now_())) return error::TokenExpired(grant.name);
  if (!grant.role || *grant.role < role) return error::RoleTooLow(grant.name, Name(role));
  return std::nullopt;
}

std::string_view BearerToken(std::string_view authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!authorization.starts_with(kScheme)) return {};
  return authorization.substr(kScheme.size());
}

}  // namespace moeplan::service
