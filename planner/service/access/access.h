// Who may call what.
//
// While the store has never had a token, whoever reaches the service may do everything: it listens on loopback, or
// asks for certificates, or was told to be insecure. From the first token on, every call needs one that is neither
// revoked nor past its time, and whose role reaches; a certificate alone does then not suffice.
#pragma once

#include <grpcpp/support/status.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "db/store.h"
#include "planner/service/access/role.h"

namespace moeplan::service {

class Access {
 public:
  using Clock = std::chrono::system_clock;
  // `now` tells when tokens end.
  explicit Access(std::function<Clock::time_point()> now = Clock::now);

  // From now on these are the tokens there are. Any thread.
  void Set(const std::vector<TokenRecord>& tokens);
  // Whether calls need a token.
  bool asks_for_tokens() const { return asks_for_tokens_; }

  // The name of the token; empty: no calls need one, or it is unknown. Any thread.
  std::string NameOf(std::string_view token) const;
  // Whether there is a token of that name that is not revoked. Any thread.
  bool HasToken(const std::string& name) const;

  // Why whoever brings `token` (empty: none) may not do what needs `role`; absent: it may. UNAUTHENTICATED with the
  // reason NO_TOKEN, UNKNOWN_TOKEN or TOKEN_EXPIRED, or PERMISSION_DENIED with ROLE_TOO_LOW. Any thread.
  std::optional<grpc::Status> Refuse(std::string_view token, Role role) const;

 private:
  struct Tokens;
  std::shared_ptr<const Tokens> tokens() const;

  const std::function<Clock::time_point()> now_;
  std::atomic<bool> asks_for_tokens_ = false;
  mutable std::mutex mutex_;
  std::shared_ptr<const Tokens> tokens_;  // Guarded by mutex_; what it points to never changes.
};

// The token of "Bearer TOKEN", the value of an `authorization` header; empty when it is something else.
std::string_view BearerToken(std::string_view authorization);

}  // namespace moeplan::service
