#include "executor/host/thread_priority.h"

#ifdef __linux__
// Not <sched.h>, which has a sched_param, too.
#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace moeplan::executor {
namespace {

sched_attr Attributes(unsigned policy) {
  sched_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.sched_policy = policy;
  attributes.sched_flags = SCHED_FLAG_RESET_ON_FORK;  // Not for threads that libraries start from this one.
  return attributes;
}

bool Set(sched_attr of_this_thread) {
  return syscall(SYS_sched_setattr, /*this thread*/ 0, &of_this_thread, /*flags=*/0) == 0;
}

}  // namespace

void RunAfterOthers() {
  constexpr int kNicer = 10;
  (void)setpriority(PRIO_PROCESS, /*this thread*/ 0, getpriority(PRIO_PROCESS, 0) + kNicer);
}

void AskForShortSlices() {
  constexpr unsigned kSliceNs = 100000;
  sched_attr attributes = Attributes(SCHED_NORMAL);
  attributes.sched_nice = getpriority(PRIO_PROCESS, 0);
  attributes.sched_runtime = kSliceNs;
  (void)Set(attributes);
}

void RunPromptly() {
  sched_attr attributes = Attributes(SCHED_RR);
  attributes.sched_priority = 1;
  if (!Set(attributes)) AskForShortSlices();
}

}  // namespace moeplan::executor

#else

namespace moeplan::executor {

void RunAfterOthers() {}
void AskForShortSlices() {}
void RunPromptly() {}

}  // namespace moeplan::executor

#endif
