// Answers that may be given again, by the bytes of their question, and the searches that are going on.
//
// All ranks of a job ask the same question at once. The first begins the search, the others wait for it without taking
// a place in the queue; whoever comes later gets the kept answer. A search ends early only when all who wait for it
// have left. Storing a profile makes all kept answers void; a search that began before is answered to those who wait,
// but not kept.
//
// Threads: any thread may call any method; callbacks are called without a lock held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>

#include "planner/service/calls/call.h"

namespace moeplan::service {

class AnswerCache {
 public:
  // Keeps the latest used answers, up to `limit_bytes` with their questions.
  explicit AnswerCache(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // The kept answer to a question; null when there is none.
  Bytes Find(std::string_view question);

  // A search for the answer to one question.
  class Search;

  // Has `call` wait for the answer to its question. Set: the caller must begin the search, heed its token, and settle
  // it. The call is answered when that is done, or as cancelled when it leaves before.
  std::shared_ptr<Search> Wait(std::string question, const std::shared_ptr<Call>& call);
  static std::stop_token cancelled(const Search& search);
  static const std::string& question(const Search& search);

  // Answers all who wait for it, and keeps the answer if `keep` and it is one.
  void Settle(Search& search, const Answer& answer, bool keep);

  // Makes all kept answers void.
  void Clear();

  struct Statistics {
    uint64_t hits = 0;    // Of Find.
    uint64_t misses = 0;  // Searches that were begun.
    size_t bytes = 0;
  };
  Statistics statistics() const;

 private:
  struct Kept {
    std::string question;
    Bytes answer;
  };

  void Leave(Search& search, Call& call);
  void Keep(const std::string& question, const Bytes& answer);
  void Drop(std::list<Kept>::iterator kept);

  const size_t limit_bytes_;
  mutable std::mutex mutex_;                                                     // Guards all below.
  std::list<Kept> kept_;                                                         // Last used first.
  std::unordered_map<std::string_view, std::list<Kept>::iterator> by_question_;  // Views of `kept_`.
  std::map<std::string, std::shared_ptr<Search>, std::less<>> searches_;
  uint64_t generation_ = 0;
  Statistics statistics_;
};

}  // namespace moeplan::service
