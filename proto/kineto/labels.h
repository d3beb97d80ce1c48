// Names an instruction of a trace, and says which operation it is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/training/training_graph.h"
#include "proto/kineto/pieces.h"

namespace moeplan::kineto {

// The event that the pieces of one instruction share, such as a backward node.
struct Owner {
  enum class Kind { kOptimizer, kPart, kNode, kFunction, kOperator, kKernel };
  Kind kind = Kind::kKernel;
  int event = -1;

  friend bool operator==(const Owner&, const Owner&) = default;
};
Owner OwnerOf(const Trace& trace, const Piece& piece);

// "AddmmBackward0", "linear", "optimizer": letters, digits and a few signs, at most 64.
std::string LabelOf(const Trace& trace, const Owner& owner, const Piece& first);

// By the owner's name; where no rule has it, by the longest piece's operator, then by its kernel. Absent where none is
// known.
std::optional<InstructionOp> OpOf(const Trace& trace, const Owner& owner, const Piece& longest);

}  // namespace moeplan::kineto
