#include "proto/kineto/weight_gradients.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/kineto/rules.h"

namespace moeplan::kineto {
namespace {

// A parameter's gradient passes fewer nodes than this on its way to the leaf.
constexpr size_t kMostNodesToLeaf = 64;

// Rows may be cut into several dimensions, and weights are often stored transposed: shapes are alike when their last
// two dimensions are, in either order, and all others.
bool Alike(const Shape& a, const Shape& b) {
  if (a.size() < 2 || a.size() != b.size()) return false;
  const size_t last = a.size() - 1;
  if (!std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(last) - 1, b.begin())) return false;
  return (a[last] == b[last] && a[last - 1] == b[last - 1]) || (a[last] == b[last - 1] && a[last - 1] == b[last]);
}

// The shape of a product's result; empty where the trace has none.
Shape ResultOf(const Event& product) {
  const bool adds = product.name == "aten::addmm" || product.name == "aten::baddbmm";
  const size_t first = adds ? 1 : 0;
  if (product.shapes.size() < first + 2) return {};
  const Shape& a = product.shapes[first];
  const Shape& b = product.shapes[first + 1];
  if (a.size() < 2 || b.size() < 2) return {};
  Shape result = a;
  result.back() = b.back();
  return result;
}

const Shape* FirstShape(const Event& event) {
  return event.shapes.empty() || event.shapes.front().empty() ? nullptr : &event.shapes.front();
}

// A backward node and what is inside of it.
struct Node {
  int evaluation = -1;
  int function = -1;              // "AddmmBackward0", inside of the evaluation.
  std::vector<int> products;      // Operators.
  std::vector<int> bare_kernels;  // Products that no operator launched.
  std::vector<Shape> sums;        // Gradients that the engine adds to others, behind the function.
  bool computes = false;
};

class Finder {
 public:
  Finder(const Trace& trace, const Nesting& nesting, const StepWork& work)
      : trace_(trace), nesting_(nesting), work_(work) {}

  WeightGradients Find() {
    ListForward();
    for (const std::vector<int>& thread : nesting_.threads()) {
      std::vector<Node> nodes = NodesOf(thread);
      AddBareKernels(nodes);
      for (size_t i = 0; i < nodes.size(); ++i) Judge(nodes, i);
    }
    return std::move(found_);
  }

 private:
  const Event& At(int event) const { return trace_.events[event]; }
  std::string_view NameOf(const Node& node) const { return NodeName(At(node.evaluation).name); }

  // Functions of the forward pass by name and number.
  void ListForward() {
    for (const std::vector<int>& thread : nesting_.threads()) {
      for (const int event : thread) {
        const Event& one = At(event);
        if (one.kind != EventKind::kOperator || one.sequence < 0 || one.backward || !IsOwnLinear(one.name)) continue;
        forward_[{one.sequence, std::string(WithoutNamespace(one.name))}].push_back(event);
      }
    }
  }

  std::vector<Node> NodesOf(const std::vector<int>& thread) const {
    std::vector<Node> nodes;
    std::map<int, size_t> place;  // An evaluation's in `nodes`.
    for (const int event : thread) {
      const Event& one = At(event);
      if (one.kind != EventKind::kOperator) continue;
      if (IsEvaluation(one.name)) {
        place[event] = nodes.size();
        nodes.push_back({.evaluation = event});
        continue;
      }
      const Owners owners = nesting_.OwnersOf(event);
      const auto at = owners.node < 0 ? place.end() : place.find(owners.node);
      if (at == place.end()) continue;
      Node& node = nodes[at->second];
      if (!IsKernelLike(one.name)) {
        if (nesting_.parent(event) == node.evaluation && node.function < 0) node.function = event;
        continue;
      }
      // AccumulateGrad is the function of its node.
      if (owners.top != event) continue;
      if (owners.function >= 0 && IsContainer(At(owners.function).name)) continue;
      if (IsProduct(one.name)) node.products.push_back(event);
      if (!IsView(one.name)) node.computes = true;
      const bool adds = one.name == "aten::add" || one.name == "aten::add_";
      if (adds && owners.function < 0 && FirstShape(one) != nullptr) node.sums.push_back(*FirstShape(one));
    }
    return nodes;
  }

  void AddBareKernels(std::vector<Node>& nodes) const {
    std::map<int, size_t> place;
    for (size_t i = 0; i < nodes.size(); ++i) place[nodes[i].evaluation] = i;
    for (const Piece& piece : work_.pieces) {
      if (!work_.on_gpu || piece.communicates || piece.owners.top >= 0 || piece.owners.node < 0) continue;
      const auto at = place.find(piece.owners.node);
      if (at == place.end()) continue;
      nodes[at->second].computes = true;
      if (OpOfKernel(At(piece.event).name) == InstructionOp::kMatmul)
        nodes[at->second].bare_kernels.push_back(piece.event);
    }
  }

  void Judge(const std::vector<Node>& nodes, size_t i) {
    const Node& node = nodes[i];
    if (AccumulatesGradient(At(node.evaluation).name)) {
      found_.leaves.insert(node.evaluation);
      return;
    }
    if (IsOwnLinear(NameOf(node))) return JudgeOwnLinear(node);
    if (node.products.empty()) {
      if (HidesWeightGradients(NameOf(node)) && node.computes) ++found_.hidden;
      return;
    }
    std::vector<size_t> between;  // Nodes that hand a gradient on.
    for (size_t j = i + 1; j < std::min(nodes.size(), i + kMostNodesToLeaf); ++j) {
      if (AccumulatesGradient(At(nodes[j].evaluation).name)) {
        if (const Shape* parameter = ShapeOf(nodes[j])) Match(node, *parameter, nodes, between);
      } else if (HandsOn(NameOf(nodes[j]))) {
        between.push_back(j);
      } else {
        return;
      }
    }
  }

  // The shape of the gradient that comes in.
  const Shape* ShapeOf(const Node& node) const {
    if (node.function >= 0 && FirstShape(At(node.function)) != nullptr) return FirstShape(At(node.function));
    return nullptr;
  }

  // The node's product that is the parameter's gradient, where exactly one may be.
  void Match(const Node& node, const Shape& parameter, const std::vector<Node>& nodes,
             const std::vector<size_t>& between) {
    std::vector<int> alike;
    bool all_known = true;
    for (const int product : node.products) {
      const Shape result = ResultOf(At(product));
      all_known = all_known && !result.empty();
      if (Alike(result, parameter)) alike.push_back(product);
    }
    if (alike.empty()) return;
    const bool is_summed =
        std::ranges::any_of(node.sums, [&](const Shape& sum) { return sum.empty() || Alike(sum, parameter); });
    const bool is_certain =
        std::ranges::all_of(between, [&](size_t j) { return !nodes[j].computes || ShapeOf(nodes[j]) != nullptr; });
    if (alike.size() > 1 || !all_known || is_summed || !is_certain || found_.products.contains(alike.front())) {
      if (!found_.products.contains(alike.front())) ++found_.ambiguous;
      return;
    }
    found_.products.emplace(alike.front(), parameter);
    for (const size_t j : between) {
      if (const Shape* handed = ShapeOf(nodes[j]); handed != nullptr && Alike(*handed, parameter)) {
        found_.leaves.insert(nodes[j].evaluation);
      }
    }
  }

  void JudgeOwnLinear(const Node& node) {
    const std::string function(WithoutNamespace(NameOf(node)));
    const auto forward = forward_.find({At(node.evaluation).sequence, function});
    const bool is_known = forward != forward_.end() && forward->second.size() == 1;
    const Event* linear = is_known ? &At(forward->second.front()) : nullptr;
    if (linear == nullptr || linear->shapes.size() < 2 || linear->shapes[1].size() != 2) {
      ++found_.hidden;
      return;
    }
    const Shape& weight = linear->shapes[1];
    std::vector<int> alike, others;
    for (const int product : node.products) {
      const Shape result = ResultOf(At(product));
      if (Alike(result, weight)) {
        alike.push_back(product);
      } else if (!result.empty()) {
        others.push_back(product);
      }
    }
    if (alike.size() == 1 && node.bare_kernels.empty()) {
      found_.products.emplace(alike.front(), weight);
    } else if (alike.empty() && !others.empty() && !node.bare_kernels.empty()) {
      for (const int kernel : node.bare_kernels) found_.products.emplace(kernel, weight);
    } else if (node.computes) {
      ++found_.ambiguous;
    }
  }

  const Trace& trace_;
  const Nesting& nesting_;
  const StepWork& work_;
  std::map<std::pair<std::int64_t, std::string>, std::vector<int>> forward_;
  WeightGradients found_;
};

}  // namespace

WeightGradients FindWeightGradients(const Trace& trace, const Nesting& nesting, const StepWork& work) {
  return Finder(trace, nesting, work).Find();
}

}  // namespace moeplan::kineto
