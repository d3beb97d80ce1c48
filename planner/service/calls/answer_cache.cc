#include "planner/service/calls/answer_cache.h"

#include <iterator>
#include <utility>
#include <vector>

#include "planner/service/errors.h"
#include "proto/grpc_status.h"

namespace moeplan::service {

// All but the first two guarded by the cache's mutex.
class AnswerCache::Search {
 public:
  Search(std::string question_of, uint64_t generation_of)
      : question(std::move(question_of)), generation(generation_of) {}

  const std::string question;
  const uint64_t generation;
  std::stop_source stop;
  size_t staying = 0;  // Those who have not left.
  std::vector<std::shared_ptr<Call>> calls;
};

Bytes AnswerCache::Find(std::string_view question) {
  const std::scoped_lock lock(mutex_);
  const auto found = by_question_.find(question);
  if (found == by_question_.end()) return nullptr;
  ++statistics_.hits;
  kept_.splice(kept_.begin(), kept_, found->second);
  return found->second->answer;
}

std::shared_ptr<AnswerCache::Search> AnswerCache::Wait(std::string question, const std::shared_ptr<Call>& call) {
  std::shared_ptr<Search> search;
  bool first = false;
  {
    const std::scoped_lock lock(mutex_);
    std::shared_ptr<Search>& place = searches_[question];
    // What everybody has left is ending, and what began before a profile was stored may miss it.
    first = !place || place->staying == 0 || place->generation != generation_;
    statistics_.misses += first;
    if (first) place = std::make_shared<Search>(std::move(question), generation_);
    search = place;
    ++search->staying;
    search->calls.push_back(call);
  }
  call->WhenCancelled([this, search, left = call.get()] { Leave(*search, *left); });
  return first ? search : nullptr;
}

std::stop_token AnswerCache::cancelled(const Search& search) { return search.stop.get_token(); }

const std::string& AnswerCache::question(const Search& search) { return search.question; }

void AnswerCache::Leave(Search& search, Call& call) {
  {
    const std::scoped_lock lock(mutex_);
    if (--search.staying == 0) search.stop.request_stop();
  }
  call.Finish({.status = ToGrpc(error::CallerLeft())});
}

void AnswerCache::Settle(Search& search, const Answer& answer, bool keep) {
  std::vector<std::shared_ptr<Call>> calls;
  {
    const std::scoped_lock lock(mutex_);
    calls.swap(search.calls);
    if (keep && answer.message && search.generation == generation_) Keep(search.question, answer.message);
    const auto place = searches_.find(search.question);
    if (place != searches_.end() && place->second.get() == &search) searches_.erase(place);
  }
  for (const std::shared_ptr<Call>& call : calls) call->Finish(answer);
}

void AnswerCache::Clear() {
  const std::scoped_lock lock(mutex_);
  ++generation_;
  by_question_.clear();
  kept_.clear();
  statistics_.bytes = 0;
}

AnswerCache::Statistics AnswerCache::statistics() const {
  const std::scoped_lock lock(mutex_);
  return statistics_;
}

void AnswerCache::Keep(const std::string& question, const Bytes& answer) {
  if (by_question_.contains(question)) return;
  kept_.push_front({.question = question, .answer = answer});
  by_question_.emplace(kept_.front().question, kept_.begin());
  statistics_.bytes += question.size() + answer->size();
  while (statistics_.bytes > limit_bytes_) Drop(std::prev(kept_.end()));
}

void AnswerCache::Drop(std::list<Kept>::iterator kept) {
  statistics_.bytes -= kept->question.size() + kept->answer->size();
  by_question_.erase(kept->question);
  kept_.erase(kept);
}

}  // namespace moeplan::service
