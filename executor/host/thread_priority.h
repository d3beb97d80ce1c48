// How the threads of a rank share the only processor that it has. Hints: where the system does not take one, nothing
// changes.
#pragma once

namespace moeplan {

// The calling thread comes after the rank's others: experts after what moves bytes.
void RunAfterOthers();

// The calling thread, which runs briefly and then sleeps, gets the processor when it wakes, not at the end of the time
// slice of whoever has it: as a real-time thread where the process may make one (root), else with short slices (Linux
// 6.12 or later).
void RunPromptly();

}  // namespace moeplan
