// Maps names in a trace to operations: one table for each kind of name, each row with its evidence.
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "models/cost/collective.h"
#include "models/training/training_graph.h"

namespace moeplan::kineto {

// The operation of an operator, a backward node ("AddmmBackward0") or an autograd function; absent where no row has it.
std::optional<InstructionOp> OpOfOperator(std::string_view name);
// The same of a kernel without an operator that a row names.
std::optional<InstructionOp> OpOfKernel(std::string_view name);
// The same of a part of a model that its code has named (record_function), such as "router" or "dispatch".
std::optional<InstructionOp> OpOfAnnotation(std::string_view name);

// The collective that "all_to_allv", "_reduce_scatter_base", "gloo:all_reduce" or "ncclDevKernel_AllGather_RING_LL"
// name; absent for broadcasts, messages between two ranks and everything else.
std::optional<Collective> CollectiveNamed(std::string_view name);
// True of the names of communication of any kind.
bool Communicates(std::string_view name);
// True of annotations that last as long as a collective on threads of its own, as Gloo's do.
bool IsOwnThreads(std::string_view name);

// True of operators that compute or move values: PyTorch's own and those of libraries, no backward nodes, no
// collectives.
bool IsKernelLike(std::string_view name);
// True of operators that only look at a tensor differently.
bool IsView(std::string_view name);
// True of backward nodes that hand a gradient on as it is, but for its shape or element type.
bool HandsOn(std::string_view node);
// True of functions that contain others which stand for themselves: a checkpoint, a compiled region.
bool IsContainer(std::string_view name);
// True of products of two matrices, the last two of the operator's tensor inputs.
bool IsProduct(std::string_view name);
// True of linear layers whose second input is the weight, and whose backward function computes
// the weight's gradient for no later node of the backward pass.
bool IsOwnLinear(std::string_view function);
// True of backward nodes with weight gradients among their kernels that no name tells from the others.
bool HidesWeightGradients(std::string_view node);

// Bytes of an element by the names that PyTorch has for its type: "BFloat16", "c10::BFloat16", "float", "long int"; 0
// for others.
double ElementBytes(std::string_view type);

// "addmm" of "aten::addmm" and of "AddmmBackward0".
std::string_view WithoutNamespace(std::string_view name);

}  // namespace moeplan::kineto
