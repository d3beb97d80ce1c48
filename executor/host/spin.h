// Looking instead of sleeping, for as long as waking a thread takes.
#pragma once

#include <sched.h>

#include <chrono>

namespace moeplan::executor {

inline void PauseProcessor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Whether this process may use more than one processor. Ranks of a local job may not (docs/decisions/0004), and there
// whoever spins only keeps off the thread it waits for.
inline bool MayRunBesideItself() {
  static const bool may = [] {
    cpu_set_t processors;
    return sched_getaffinity(0, sizeof(processors), &processors) != 0 || CPU_COUNT(&processors) > 1;
  }();
  return may;
}

// Looks at `done` until it is true, a few microseconds at most: ranks share processors.
template <typename Condition>
void SpinUntil(Condition done) {
  if (!MayRunBesideItself()) return;
  constexpr auto kSpin = std::chrono::microseconds(4);
  constexpr int kLooksPerClock = 16;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int look = 0; look < kLooksPerClock; ++look) {
      if (done()) return;
      PauseProcessor();
    }
  } while (std::chrono::steady_clock::now() < end);
}

}  // namespace moeplan::executor
