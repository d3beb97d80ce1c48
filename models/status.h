// Errors as values, for the whole project.
//
// A Status says why an operation did not happen, in one sentence a user can act on: what, where, what was found and
// what was expected. A StatusOr<T> is a T or such a Status. Bugs in our own code are failed checks (models/check.h),
// never a Status. Plain values: any thread may use its own copy.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

#include "models/check.h"

namespace moeplan {

enum class StatusCode {
  kOk,
  kInvalidInput,      // The request, a file or the command line is wrong; the caller can mend it.
  kNotFound,          // A named thing (profile, file, entry) does not exist.
  kInfeasible,        // The input is sound and the answer is "no".
  kUnavailable,       // A peer, server, port or tool is not there.
  kDeadlineExceeded,  // A peer did not answer in time.
  kPeerLost,          // A rank died or closed its connection.
  kPermissionDenied,  // The operating system said no.
  kDataLoss,          // Stored bytes are damaged or from a newer version.
  kUnimplemented,     // Known, but not in this build.
  kCancelled,
  kInternal,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same error seen from further out: "context: message". An OK status stays OK.
  Status Within(std::string_view context) const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return {}; }
inline Status InvalidInput(std::string message) { return {StatusCode::kInvalidInput, std::move(message)}; }
inline Status NotFound(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
inline Status Infeasible(std::string message) { return {StatusCode::kInfeasible, std::move(message)}; }
inline Status Unavailable(std::string message) { return {StatusCode::kUnavailable, std::move(message)}; }
inline Status DeadlineExceeded(std::string message) { return {StatusCode::kDeadlineExceeded, std::move(message)}; }
inline Status PeerLost(std::string message) { return {StatusCode::kPeerLost, std::move(message)}; }
inline Status PermissionDenied(std::string message) { return {StatusCode::kPermissionDenied, std::move(message)}; }
inline Status DataLoss(std::string message) { return {StatusCode::kDataLoss, std::move(message)}; }
inline Status Unimplemented(std::string message) { return {StatusCode::kUnimplemented, std::move(message)}; }
inline Status Cancelled(std::string message) { return {StatusCode::kCancelled, std::move(message)}; }
inline Status InternalError(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

// The name of a code as logs print it, such as "INVALID_INPUT".
std::string_view Name(StatusCode code);

template <typename T>
class [[nodiscard]] StatusOr : public tl::expected<T, Status> {
 public:
  using Base = tl::expected<T, Status>;
  using Base::Base;
  // An error; `status` must not be OK.
  StatusOr(Status status) : Base(tl::unexpect, std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return this->has_value(); }
  // OK when a value is held, else the error.
  Status status() const { return ok() ? Status() : this->error(); }

  // To look for the value of an error is our own bug.
  T& operator*() & { return Checked(*this); }
  const T& operator*() const& { return Checked(*this); }
  T&& operator*() && { return std::move(Checked(*this)); }
  T* operator->() { return &Checked(*this); }
  const T* operator->() const { return &Checked(*this); }

 private:
  template <typename Self>
  static auto& Checked(Self& self) {
    MOEPLAN_CHECK(self.ok());
    return *static_cast<std::conditional_t<std::is_const_v<Self>, const Base, Base>&>(self);
  }
};

}  // namespace moeplan

#define MOEPLAN_CONCAT_INNER(a, b) a##b
#define MOEPLAN_CONCAT(a, b) MOEPLAN_CONCAT_INNER(a, b)

// Returns the error of a Status expression from the enclosing function; goes on when it is OK.
#define RETURN_IF_ERROR(expression)                                                                   \
  do {                                                                                                \
    if (::moeplan::Status moeplan_status = (expression); !moeplan_status.ok()) return moeplan_status; \
  } while (false)

// Declares or assigns `target` from a StatusOr expression, or returns its error.
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_INNER(MOEPLAN_CONCAT(moeplan_status_or_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_INNER(holder, target, expression) \
  auto holder = (expression);                              \
  if (!holder.ok()) return holder.status();                \
  target = *std::move(holder)
