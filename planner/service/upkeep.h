// Watches the store for what other processes do to it: new profiles make kept answers void, new and revoked tokens
// count from then on, for streams that are open, too.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>

#include "models/cost/profile.h"
#include "models/status.h"
#include "planner/service/access/access.h"
#include "planner/service/access/open_streams.h"
#include "planner/service/calls/answer_cache.h"
#include "planner/service/log.h"

namespace moeplan::service {

class Upkeep {
 public:
  // How late it may notice.
  static constexpr std::chrono::milliseconds kPeriod{100};

  // Knows the tokens when it answers. `saved` is told the profile saved last, at first and whenever there is a new one.
  // Reads through a Store of its own, so that writers hold nobody up.
  static StatusOr<std::unique_ptr<Upkeep>> Start(const std::filesystem::path& store, Access& access,
                                                 OpenStreams& streams, AnswerCache& cache, LogSink log,
                                                 std::function<void(const Profile& newest)> saved);
  virtual ~Upkeep() = default;
};

}  // namespace moeplan::service
