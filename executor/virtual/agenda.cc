#include "executor/virtual/agenda.h"

#include "models/check.h"

namespace moeplan {

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

}  // namespace moeplan
