#include "planner/service/fleet/mailbox.h"

#include <algorithm>
#include <utility>

#include "models/text.h"

namespace moeplan::service {
namespace {

constexpr size_t kMostUntaken = 64;

}  // namespace

bool Mailbox::Deliver(int rank, v1::RankReply reply) {
  {
    const std::scoped_lock lock(mutex_);
    if (boxes_[rank].replies.size() == kMostUntaken) return false;
    boxes_[rank].replies.push_back(std::move(reply));
  }
  changed_.notify_all();
  return true;
}

void Mailbox::Lose(int first_rank, int count, const std::string& how) {
  {
    const std::scoped_lock lock(mutex_);
    for (int rank = first_rank; rank < first_rank + count; ++rank) {
      if (boxes_[rank].end.empty()) boxes_[rank].end = how;
    }
  }
  changed_.notify_all();
}

std::vector<int> Mailbox::Ready(const std::vector<bool>& wanted) const {
  std::vector<int> ready;
  for (size_t rank = 0; rank < boxes_.size(); ++rank) {
    const Box& box = boxes_[rank];
    if (wanted[rank] && (!box.replies.empty() || !box.end.empty())) ready.push_back(static_cast<int>(rank));
  }
  return ready;
}

std::vector<int> Mailbox::Await(const std::vector<bool>& wanted, Moment until) {
  std::unique_lock lock(mutex_);
  std::vector<int> ready = Ready(wanted);
  while (ready.empty() && changed_.wait_until(lock, until) == std::cv_status::no_timeout) ready = Ready(wanted);
  return ready.empty() ? Ready(wanted) : ready;
}

StatusOr<v1::RankReply> Mailbox::Take(int rank) {
  const std::scoped_lock lock(mutex_);
  Box& box = boxes_[rank];
  if (box.replies.empty()) {
    if (box.end.empty()) return Unavailable("no answer yet");
    return PeerLost(StrCat("its process was ", box.end));
  }
  v1::RankReply reply = std::move(box.replies.front());
  box.replies.pop_front();
  return reply;
}

std::string Mailbox::EndOf(int rank) const {
  const std::scoped_lock lock(mutex_);
  return boxes_[rank].end;
}

int Mailbox::FirstLost() const {
  const std::scoped_lock lock(mutex_);
  const auto lost = std::ranges::find_if(boxes_, [](const Box& box) { return !box.end.empty(); });
  return lost == boxes_.end() ? -1 : static_cast<int>(lost - boxes_.begin());
}

}  // namespace moeplan::service
