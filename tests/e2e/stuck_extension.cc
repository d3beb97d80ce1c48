// A schedule whose rule never answers and never looks whether anybody still wants to know: work that cannot be stopped.
#include <chrono>
#include <thread>

#include "models/extension/extension.h"

namespace {

moeplan::Status NeverAnswers(const moeplan::Workload&) {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

moeplan::Status AddStuck() {
  return moeplan::RegisterSchedule({.name = "STUCK",
                                    .build = [](const moeplan::Knobs&, const moeplan::Workload&,
                                                const moeplan::Cluster&) { return moeplan::TaskGraph(); },
                                    .allowed = NeverAnswers})
      .status();
}

}  // namespace

MOEPLAN_EXTENSION(AddStuck)
