// Which products of the backward pass are weight gradients that nothing in that pass reads.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "proto/kineto/pieces.h"

namespace moeplan::kineto {

// A product of a backward node is taken for a weight's gradient in two cases.
//
// - Behind the node, but for nodes that hand a gradient on as it is (a transpose, a cast), autograd adds a gradient of
//   that shape to a parameter (AccumulateGrad). Autograd runs AccumulateGrad as soon as its gradient is there, so that
//   the gradient is the node's; and no other product of the node has that shape, nor is another gradient added to it.
// - The node is that of a linear layer that writes the gradient itself (IsOwnLinear): the product has the shape of the
//   forward function's second input alone, or it is a kernel of a library that no operator of PyTorch launches, behind
//   the product that gives the input's gradient.
struct WeightGradients {
  // Their operators, and kernels without one, by event; with the shape of the weight.
  std::unordered_map<int, Shape> products;
  // Nodes (evaluate_function) that take a weight's gradient to its parameter and do nothing else.
  std::unordered_set<int> leaves;
  size_t ambiguous = 0;  // Nodes with a parameter's gradient that shapes do not tell from another product.
  size_t hidden = 0;     // Nodes whose weight gradients no name tells from their other kernels.
};

WeightGradients FindWeightGradients(const Trace& trace, const Nesting& nesting, const StepWork& work);

}  // namespace moeplan::kineto
