// SIGINT and SIGTERM as something to wait for.
#pragma once

#include <signal.h>

namespace moeplan::cli {

// Blocks both in every thread and process started from here on, so that only who waits for them sees them.
sigset_t BlockStopSignals();

}  // namespace moeplan::cli
