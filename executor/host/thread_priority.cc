#include "executor/host/thread_priority.h"

#ifdef __linux__
// Not <sched.h>, which has a sched_param, too.
#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/syscall.h>
#endif
#include <sys/resource.h>
#include <unistd.h>

namespace moeplan {

#ifdef __linux__
namespace {
bool Set(sched_attr& of_this_thread) {
  return syscall(SYS_sched_setattr, /*this thread*/ 0, &of_this_thread, /*flags=*/0) == 0;
}
}  // namespace
#endif

void RunAfterOthers() {
  constexpr int kNicer = 10;
  (void)setpriority(PRIO_PROCESS, /*this thread*/ 0, getpriority(PRIO_PROCESS, 0) + kNicer);
}

void RunPromptly() {
#ifdef __linux__
  sched_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.sched_policy = SCHED_RR;
  attributes.sched_priority = 1;
  if (Set(attributes)) return;
  // Who asks for shorter slices than the running thread's may interrupt it; its share of the processor stays the same.
  constexpr unsigned kSliceNs = 100000;
  attributes = {};
  attributes.size = sizeof attributes;
  attributes.sched_nice = getpriority(PRIO_PROCESS, 0);
  attributes.sched_runtime = kSliceNs;
  (void)Set(attributes);
#endif
}

}  // namespace moeplan
