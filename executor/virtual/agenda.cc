#include "executor/virtual/agenda.h"

#include <limits>

#include "models/check.h"

namespace moeplan::executor {

void Agenda::After(double delay_s, Action action) {
  MOEPLAN_CHECK(delay_s >= 0);
  actions_.emplace(std::pair(now_s_ + delay_s, added_++), std::move(action));
}

bool Agenda::PlayNext() {
  if (actions_.empty()) return false;
  const auto next = actions_.extract(actions_.begin());
  now_s_ = next.key().first;
  next.mapped()();
  return true;
}

double Agenda::next_s() const {
  return actions_.empty() ? std::numeric_limits<double>::infinity() : actions_.begin()->first.first;
}

void Agenda::MoveTo(double now_s) {
  MOEPLAN_CHECK(now_s_ <= now_s && now_s <= next_s());
  now_s_ = now_s;
}

}  // namespace moeplan::executor
