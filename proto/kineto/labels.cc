#include "proto/kineto/labels.h"

#include <algorithm>
#include <cctype>

#include "proto/kineto/rules.h"

namespace moeplan::kineto {
namespace {

constexpr size_t kLongestLabel = 64;

std::string_view NameIn(const Trace& trace, int event) { return trace.events[event].name; }

}  // namespace

Owner OwnerOf(const Trace& trace, const Piece& piece) {
  using enum Owner::Kind;
  const Owners& owners = piece.owners;
  if (owners.optimizer >= 0) return {kOptimizer, owners.optimizer};
  if (owners.annotation >= 0 && !piece.backward) return {kPart, owners.annotation};
  const bool in_container = owners.function >= 0 && IsContainer(NameIn(trace, owners.function));
  if (owners.node >= 0 && !in_container) return {kNode, owners.node};
  if (owners.function >= 0 && !in_container) return {kFunction, owners.function};
  if (owners.top >= 0) return {kOperator, owners.top};
  return {kKernel, piece.event};
}

std::string LabelOf(const Trace& trace, const Owner& owner, const Piece& first) {
  std::string_view name;
  switch (owner.kind) {
    case Owner::Kind::kOptimizer:
      return NameIn(trace, owner.event).starts_with("Optimizer.zero_grad") ? "zero_grad" : "optimizer";
    case Owner::Kind::kNode: name = NodeName(NameIn(trace, owner.event)); break;
    case Owner::Kind::kOperator: name = NameIn(trace, owner.event); break;
    case Owner::Kind::kPart:
    case Owner::Kind::kFunction: name = NameIn(trace, owner.event); break;
    case Owner::Kind::kKernel: name = NameIn(trace, first.event); break;
  }
  if (name.starts_with("aten::")) name.remove_prefix(6);
  if (name.starts_with("torch::autograd::")) name.remove_prefix(17);
  if (name.starts_with("void ")) name.remove_prefix(5);
  std::string label;
  for (const char c : name.substr(0, std::min(name.find_first_of("(<"), kLongestLabel))) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == ':' || c == '.' || c == '-';
    label += is_plain ? c : '_';
  }
  return label.empty() ? "unnamed" : label;
}

std::optional<InstructionOp> OpOf(const Trace& trace, const Owner& owner, const Piece& longest) {
  std::optional<InstructionOp> op;
  switch (owner.kind) {
    case Owner::Kind::kOptimizer: return InstructionOp::kOther;
    case Owner::Kind::kPart: op = OpOfAnnotation(NameIn(trace, owner.event)); break;
    case Owner::Kind::kNode: op = OpOfOperator(NodeName(NameIn(trace, owner.event))); break;
    case Owner::Kind::kFunction:
    case Owner::Kind::kOperator: op = OpOfOperator(NameIn(trace, owner.event)); break;
    case Owner::Kind::kKernel: break;
  }
  if (!op && longest.owners.top >= 0) op = OpOfOperator(NameIn(trace, longest.owners.top));
  if (!op && trace.events[longest.event].kind == EventKind::kKernel) op = OpOfKernel(NameIn(trace, longest.event));
  return op;
}

}  // namespace moeplan::kineto
