#include "executor/sim/rank_turns.h"

#include <algorithm>
#include <limits>

#include "models/check.h"

namespace moeplan::executor {

RankTurns::RankTurns(int ranks) : ranks_(ranks) {}

void RankTurns::Conduct(const Play& play) {
  std::unique_lock lock(mutex_);
  const auto ended = [](const RankState& rank) { return rank.state == State::kEnded; };
  while (!std::ranges::all_of(ranks_, ended)) {
    if (const int rank = NextRank(); rank >= 0) {
      GiveTurn(lock, rank);
    } else if (AllWait()) {
      // Only ranks outside touch the state meanwhile, and of that their own.
      lock.unlock();
      const bool played = PlayOn(play);
      lock.lock();
      if (!played && AllWait()) FailAll(play);
    } else {
      passed_on_.wait(lock);
    }
  }
}

void RankTurns::StepIn(int rank) {
  std::unique_lock lock(mutex_);
  ranks_[rank].state = State::kSteppingIn;
  ++ranks_[rank].times_in;
  passed_on_.notify_one();
  TakeTurn(lock, rank);
}

void RankTurns::PassOn(int rank, State state) {
  const std::lock_guard lock(mutex_);
  ranks_[rank].state = state;
  HandOn();
}

void RankTurns::EndUnbegun(int rank) {
  const std::lock_guard lock(mutex_);
  ranks_[rank].state = State::kEnded;
}

void RankTurns::Await(int rank, const std::function<bool()>& ready, const std::string& what) {
  if (ready()) return;
  std::unique_lock lock(mutex_);
  RankState& own = ranks_[rank];
  own.state = State::kAwaiting;
  own.ready = &ready;
  own.awaits = what;
  HandOn();
  TakeTurn(lock, rank);
}

void RankTurns::HandOn() {
  running_ = NextRank();
  if (running_ < 0) return passed_on_.notify_one();
  ranks_[running_].state = State::kRunning;
  ranks_[running_].turn.notify_one();
}

void RankTurns::TakeTurn(std::unique_lock<std::mutex>& lock, int rank) {
  ranks_[rank].turn.wait(lock, [&] { return ranks_[rank].state == State::kRunning; });
}

int RankTurns::NextRank() const {
  int fewest_times_in = std::numeric_limits<int>::max();
  for (const RankState& rank : ranks_) {
    if (rank.state != State::kEnded) fewest_times_in = std::min(fewest_times_in, rank.times_in);
  }
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankState& one = ranks_[rank];
    const bool steps_in = one.state == State::kSteppingIn && one.times_in <= fewest_times_in;
    if (steps_in || (one.state == State::kAwaiting && (*one.ready)())) return static_cast<int>(rank);
  }
  return -1;
}

bool RankTurns::AllWait() const {
  int most_times_in = 0;
  bool awaits = false;
  for (const RankState& rank : ranks_) most_times_in = std::max(most_times_in, rank.times_in);
  for (const RankState& rank : ranks_) {
    awaits = awaits || rank.state == State::kAwaiting;
    if (rank.state == State::kSteppingIn) return false;
    if (rank.state == State::kOutside && rank.times_in < most_times_in) return false;
  }
  return awaits;
}

void RankTurns::GiveTurn(std::unique_lock<std::mutex>& lock, int rank) {
  MOEPLAN_CHECK(running_ == -1);
  running_ = rank;
  ranks_[rank].state = State::kRunning;
  ranks_[rank].turn.notify_one();
  passed_on_.wait(lock, [this] { return running_ == -1; });
}

bool RankTurns::PlayOn(const Play& play) {
  woken_ = false;
  while (!woken_) {
    if (!play.next()) return false;
  }
  return true;
}

void RankTurns::FailAll(const Play& play) const {
  std::vector<std::string> waiting;
  for (const RankState& rank : ranks_) waiting.push_back(rank.state == State::kAwaiting ? rank.awaits : "");
  play.fail_all(waiting);
}

}  // namespace moeplan::executor
