// How the threads of a rank share the only processor that it has. Hints: where the system does not take one, nothing
// changes.
#pragma once

namespace moeplan::executor {

// The calling thread comes after the rank's others: experts after what moves bytes.
void RunAfterOthers();

// The calling thread may interrupt those with longer slices when it wakes; its share of the processor stays the same
// (Linux 6.12 or later).
void AskForShortSlices();

// The calling thread, which sleeps most of the time, gets the processor when it wakes, not at the end of the time slice
// of whoever has it: as a real-time thread where the process may make one (root), else with short slices. Not for one
// that spins for what another holds: that one may never get to let go.
void RunPromptly();

}  // namespace moeplan::executor
