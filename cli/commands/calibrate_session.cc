#include "cli/commands/calibrate_session.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <ranges>
#include <vector>

#include "models/text.h"

namespace moeplan::cli {
namespace {

std::string PrefixOf(const std::string& profile_name) { return StrCat("calibrate ", profile_name, " "); }

// A number that went to another process since makes a session look as if it went on: a new one begins then, and the
// samples of both count.
bool MayStillRun(const std::string& session) {
  const std::string text = session.substr(session.rfind(' ') + 1);
  pid_t process = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), process);
  if (problem != std::errc() || process <= 0 || process == getpid()) return false;
  return kill(process, 0) == 0 || errno == EPERM;
}

}  // namespace

std::string NewSession(const std::string& profile_name, const std::string& taken_at) {
  return StrCat(PrefixOf(profile_name), taken_at, " ", static_cast<int>(getpid()));
}

std::string RequestOfSession(const std::string& session) { return StrCat("Calibrate ", session); }

StatusOr<std::optional<std::string>> InterruptedSession(const Store& store, const std::string& profile_name,
                                                        const Cluster& cluster) {
  const StatusOr<std::vector<Calibration>> found = store.SamplesOf({.profile_name = profile_name});
  if (!found.ok() && found.status().code() == StatusCode::kNotFound) return std::optional<std::string>();
  RETURN_IF_ERROR(found.status());
  for (const Calibration& one : std::views::reverse(*found)) {
    if (!one.calibration.starts_with(PrefixOf(profile_name)) || one.samples.cluster != cluster) continue;
    // A session of a moeplan that kept its samples at the end is one batch of its own name.
    ASSIGN_OR_RETURN(const bool whole, store.HasBatch(one.calibration));
    ASSIGN_OR_RETURN(const std::optional<ProfileVersion> ended,
                     store.VersionOfRequest(RequestOfSession(one.calibration)));
    if (!whole && !ended && !MayStillRun(one.calibration)) return std::optional(one.calibration);
  }
  return std::optional<std::string>();
}

}  // namespace moeplan::cli
