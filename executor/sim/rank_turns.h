// Turns of threads that drive the ranks of a simulated job: one thread runs at a time, and while all wait, the thread
// that conducts plays the clock.
//
// A rank's thread is given its turn, runs until it waits in Await, steps out in Outside or ends, and by that passes the
// turn on: to the lowest rank that can go on. Whoever steps out waits for something that is not simulated, such as its
// next command; it goes on when every other rank has stepped back in as often. So ranks that all get the same commands
// run in the same order whatever the order in which the commands come, and the clock stands still while some still owe
// a command to ranks that are inside.
//
// Member functions but Conduct are called on rank threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "executor/virtual/virtual_device.h"

namespace moeplan::executor {

class RankTurns final : public VirtualConductor {
 public:
  explicit RankTurns(int ranks);

  // What happens while all ranks wait. Called on the thread that conducts.
  struct Play {
    std::function<bool()> next;  // Plays on; false: nothing is left that could happen.
    // All that wait would wait for ever: fails those of `waiting` (by rank: for what; else empty), so that all are
    // ready.
    std::function<void(const std::vector<std::string>& waiting)> fail_all;
  };

  // Gives turns until every rank has ended. On the thread that made the network.
  void Conduct(const Play& play);

  // The life of a rank's thread.
  void Begin(int rank) { StepIn(rank); }
  void End(int rank) { PassOn(rank, State::kEnded); }
  // Of a rank whose thread never was.
  void EndUnbegun(int rank);
  // Without the turn meanwhile.
  void Outside(int rank, const std::function<void()>& function) {
    PassOn(rank, State::kOutside);
    function();
    StepIn(rank);
  }

  void Await(int rank, const std::function<bool()>& ready, const std::string& what) override;
  void Wake(int /*rank*/) override { woken_ = true; }

 private:
  enum class State { kOutside, kSteppingIn, kRunning, kAwaiting, kEnded };
  struct RankState {
    State state = State::kOutside;
    int times_in = 0;
    const std::function<bool()>* ready = nullptr;
    std::string awaits;
    std::condition_variable turn;
  };

  void StepIn(int rank);
  void PassOn(int rank, State state);
  // From who has the turn to the next rank, or, where none can go on, to who conducts.
  void HandOn();
  // Waits for the turn.
  void TakeTurn(std::unique_lock<std::mutex>& lock, int rank);
  int NextRank() const;  // -1: none.
  bool AllWait() const;
  void GiveTurn(std::unique_lock<std::mutex>& lock, int rank);
  // Until somebody may be ready; false: nothing is left to play.
  bool PlayOn(const Play& play);
  void FailAll(const Play& play) const;

  std::mutex mutex_;
  std::condition_variable passed_on_;
  std::deque<RankState> ranks_;
  int running_ = -1;
  // Whether a rank that awaits may be ready. Whoever has the turn, or plays, writes it.
  bool woken_ = false;
};

}  // namespace moeplan::executor
