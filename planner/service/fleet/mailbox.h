// A Mailbox holds what came in from the ranks of a session and was not taken yet. Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "models/status.h"
#include "moeplan/v1/rank_control.pb.h"

namespace moeplan::service {

class Mailbox {
 public:
  using Moment = std::chrono::steady_clock::time_point;

  explicit Mailbox(int ranks) : boxes_(ranks) {}

  // False, and it is dropped, when more lie there than a rank can owe.
  [[nodiscard]] bool Deliver(int rank, v1::RankReply reply);
  // The first end counts.
  void Lose(int first_rank, int count, const std::string& how);

  // These are as in RankLinks. Take is Receive, but kUnavailable while nothing has come.
  std::vector<int> Await(const std::vector<bool>& wanted, Moment until);
  StatusOr<v1::RankReply> Take(int rank);
  std::string EndOf(int rank) const;
  int ranks() const { return static_cast<int>(boxes_.size()); }
  // The lowest lost rank; -1: none.
  int FirstLost() const;

 private:
  struct Box {
    std::deque<v1::RankReply> replies;
    std::string end;
  };

  std::vector<int> Ready(const std::vector<bool>& wanted) const;  // Requires the lock.

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Box> boxes_;  // Guarded by mutex_.
};

}  // namespace moeplan::service
