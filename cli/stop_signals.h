// SIGINT and SIGTERM as something to wait for, or to look at.
#pragma once

#include <signal.h>

#include <string>

namespace moeplan::cli {

// Blocks both in every thread and process started from here on, so that only who waits for them sees them.
sigset_t BlockStopSignals();

// While it lives, the first of both signals is a wish that the process looks at, and the second ends it, as do some
// seconds after the first: what it waits for may be a rank that hangs. Before it ends so, with exit code 3, the process
// says on standard error what it has kept. Processes that are started meanwhile get their signals as usual. At most one
// at a time, from one thread.
class StopOnSignal {
 public:
  // The last words are a count between two texts.
  StopOnSignal(const std::string& before, const std::string& behind);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;

  // 0, as at first: there are no last words.
  static void SetCount(int count);
  static void SayLastWords();

  // The first signal; 0: there was none.
  static int signal();
};

}  // namespace moeplan::cli
