// What happens when on one virtual clock: a discrete-event queue.
//
// Actions at the same instant run in the order they were added, so that playing is deterministic. Seconds since the
// clock began; time only moves in PlayNext. Not thread-safe. Whose events are not all known beforehand overrides
// PlayNext, as executor/sim does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace moeplan::executor {

class Agenda {
 public:
  using Action = std::function<void()>;

  virtual ~Agenda() = default;

  double now_s() const { return now_s_; }

  // Requires delay_s >= 0.
  void After(double delay_s, Action action);

  // Moves to the next action and runs it; false: there is none.
  virtual bool PlayNext();

 protected:
  // Of the next action; infinity: there is none.
  double next_s() const;
  // Time goes on without an action. Requires now_s() <= now_s <= next_s().
  void MoveTo(double now_s);

 private:
  double now_s_ = 0;
  uint64_t added_ = 0;
  std::map<std::pair<double, uint64_t>, Action> actions_;  // By time, then order of adding.
};

}  // namespace moeplan::executor
