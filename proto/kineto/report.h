// Says in words how much of its trace a graph has.
#pragma once

#include <string>
#include <vector>

#include "proto/kineto/instructions.h"

namespace moeplan::kineto {

// At most ten lines name what no rule knows, longest first, each with its line in the file.
inline constexpr size_t kMostUnmappedNotes = 10;

std::vector<std::string> NotesOf(const Trace& trace, const StepWork& work, const WeightGradients& gradients,
                                 const Instructions& instructions, bool has_ranks_per_node);

}  // namespace moeplan::kineto
