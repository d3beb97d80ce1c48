// The streams that are open, and their end once whoever opened them may no more.
//
// Threads: any. Streams are told without a lock held.
#pragma once

#include <grpcpp/support/status.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "planner/service/access/access.h"
#include "planner/service/access/role.h"

namespace moeplan::service {

// A stream that may be ended before either side wants it.
class RevocableStream {
 public:
  virtual ~RevocableStream() = default;
  // Ends it with that status. Called again as long as the stream lives: what is being written may end the first time,
  // not the second.
  virtual void Revoke(const grpc::Status& why) = 0;
};

class OpenStreams {
 public:
  explicit OpenStreams(const Access& access) : access_(access) {}

  // A stream that `token` opened for what needs `role`. It counts as long as it lives.
  void Add(std::string token, Role role, std::weak_ptr<RevocableStream> stream);

  // Ends those that would be refused now. Called whenever tokens may have come, gone or ended.
  void EndRefused();

 private:
  const Access& access_;
  std::mutex mutex_;
  // By who opened them, so that a token is looked up once for all of its streams. Guarded by mutex_.
  std::map<std::pair<std::string, Role>, std::vector<std::weak_ptr<RevocableStream>>> streams_;
};

}  // namespace moeplan::service
