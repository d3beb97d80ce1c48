#include "proto/kineto/instructions.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "models/text.h"
#include "proto/kineto/labels.h"
#include "proto/kineto/rules.h"

namespace moeplan::kineto {
namespace {

constexpr double kSecondsPerUs = 1e-6;

InstructionOp OpOfCollective(Collective collective) {
  switch (collective) {
    case Collective::kAllGather: return InstructionOp::kAllGather;
    case Collective::kReduceScatter: return InstructionOp::kReduceScatter;
    case Collective::kAllReduce: return InstructionOp::kAllReduce;
    default: return InstructionOp::kAllToAll;
  }
}

// How a piece takes part in what depends on what.
enum class Role { kComputes, kWeightGradient, kLeaf, kCollective };

// Gives each collective a stream of the graph. Those of one stream of the trace share one; that of all-to-alls is
// INTER_NODE.
class Streams {
 public:
  explicit Streams(const StepWork& work) {
    for (const Piece& piece : work.pieces) {
      if (piece.collective == Collective::kAllToAll) kinds_[piece.stream] = StreamKind::kInterNode;
    }
    StreamKind next = StreamKind::kIntraNode;
    for (const Piece& piece : work.pieces) {
      if (!piece.collective || kinds_.contains(piece.stream)) continue;
      kinds_[piece.stream] = std::exchange(next, StreamKind::kCopy);
    }
  }
  StreamKind Of(const Piece& piece) const { return kinds_.at(piece.stream); }

 private:
  std::map<std::int64_t, StreamKind> kinds_;
};

// Pieces of one owner and one role, one after the other.
double SizeOf(const Shape& shape) { return std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies()); }

struct Group {
  Role role = Role::kComputes;
  Owner owner;
  std::vector<const Piece*> pieces;

  double time_us() const {
    double sum_us = 0;
    for (const Piece* piece : pieces) sum_us += piece->busy_us;
    return sum_us;
  }
  const Piece& longest() const { return **std::ranges::max_element(pieces, {}, &Piece::busy_us); }
  double last_start_us() const { return (*std::ranges::max_element(pieces, {}, &Piece::start_us))->start_us; }
};

class Writer {
 public:
  Writer(const Trace& trace, const StepWork& work, const WeightGradients& gradients, const InstructionOptions& options,
         bool is_coarse)
      : trace_(trace), work_(work), weights_(gradients), options_(options), is_coarse_(is_coarse), streams_(work) {
    for (const Piece& piece : work.pieces) {
      if (piece.backward) last_backward_us_ = std::max(last_backward_us_, piece.launch_us);
    }
  }

  Instructions Write() {
    Group group;
    for (const Piece& piece : work_.pieces) {
      if (IsTooLarge()) break;
      const Role role = RoleOf(piece);
      const Owner owner = OwnerOf(trace_, piece);
      if (!group.pieces.empty() && !GoesOn(group, role, owner, piece)) Add(std::exchange(group, {}));
      group.role = role;
      if (group.pieces.empty()) group.owner = owner;
      group.pieces.push_back(&piece);
    }
    if (!group.pieces.empty() && !IsTooLarge()) Add(group);
    written_.is_too_large = IsTooLarge();
    for (auto& [name, one] : unmapped_) written_.unmapped.push_back(std::move(one));
    std::ranges::stable_sort(written_.unmapped, std::greater(), &Unmapped::time_s);
    written_.is_coarse = is_coarse_;
    return std::move(written_);
  }

 private:
  // A collective that was launched and that nothing that computes has read.
  struct Pending {
    std::string tensor;
    double end_us = 0;
  };

  bool IsTooLarge() const { return written_.all.size() > kMostInstructions || tensors_ > kMostTensors; }

  Role RoleOf(const Piece& piece) const {
    if (piece.collective) return Role::kCollective;
    const bool is_product = weights_.products.contains(piece.owners.top) || weights_.products.contains(piece.event);
    if (is_product) return Role::kWeightGradient;
    // All that follows reads communication that is no collective of a graph.
    if (piece.communicates) return Role::kComputes;
    return weights_.leaves.contains(piece.owners.node) ? Role::kLeaf : Role::kComputes;
  }

  bool GoesOn(const Group& group, Role role, const Owner& owner, const Piece& piece) const {
    if (group.role != role || role == Role::kCollective) return false;
    if (group.pieces.front()->backward != piece.backward) return false;
    if (piece.communicates || group.pieces.back()->communicates) return false;
    if (role == Role::kWeightGradient) {
      return group.owner == owner && group.pieces.back()->owners.top == piece.owners.top;
    }
    if (role == Role::kLeaf) return true;
    return group.owner == owner || (is_coarse_ && role == Role::kComputes);
  }

  void Add(const Group& group) {
    Instruction one;
    const Piece& first = *group.pieces.front();
    // The optimizer and all else behind the last backward node is no forward pass either.
    one.phase = first.backward || first.launch_us > last_backward_us_ ? Pass::kBackward : Pass::kForward;
    one.time_s = group.time_us() * kSecondsPerUs;
    if (group.role == Role::kCollective) {
      DescribeCollective(first, one);
    } else {
      DescribeWork(group, one);
    }
    one.id = StrCat(written_.all.size(), ".", one.id);
    one.outputs = {StrCat("t", written_.all.size())};
    Connect(group, one);
    tensors_ += one.inputs.size() + one.outputs.size();
    written_.all.push_back(std::move(one));
  }

  void DescribeWork(const Group& group, Instruction& one) {
    const Piece& longest = group.longest();
    one.id = LabelOf(trace_, group.owner, *group.pieces.front());
    std::optional<InstructionOp> op;
    if (group.role == Role::kWeightGradient) {
      op = InstructionOp::kMatmul;
      one.id += ".dw." + ShapeText(ShapeOf(*group.pieces.front()));
      one.weight_gradient = true;
    } else if (group.role == Role::kLeaf) {
      op = InstructionOp::kOther;
      one.id = "AccumulateGrad";
    } else if (!longest.communicates) {
      op = is_coarse_ ? CommonOp(group) : OpOf(trace_, group.owner, longest);
    }
    one.op = op.value_or(InstructionOp::kOther);
    const bool is_local = longest.communicates && longest.call.group_size == 1;
    if (op || is_local) {
      written_.recognised_s += *one.time_s;
      return;
    }
    written_.unmapped_s += *one.time_s;
    const std::string name = longest.communicates && !longest.call.name.empty() ? longest.call.name : one.id;
    Unmapped& unmapped = unmapped_[name];
    if (unmapped.count++ == 0) {
      unmapped.name = name;
      unmapped.line = trace_.events[longest.communicates ? longest.event : group.owner.event].line;
    }
    unmapped.time_s += *one.time_s;
  }

  const Shape& ShapeOf(const Piece& product) const {
    const auto by_operator = weights_.products.find(product.owners.top);
    return by_operator != weights_.products.end() ? by_operator->second : weights_.products.at(product.event);
  }
  static std::string ShapeText(const Shape& shape) {
    std::string text;
    for (const double size : shape) text += StrCat(text.empty() ? "" : "x", size);
    return text;
  }

  // The operation that all pieces of a group share; OTHER where they differ.
  std::optional<InstructionOp> CommonOp(const Group& group) const {
    std::optional<InstructionOp> common;
    for (const Piece* piece : group.pieces) {
      const InstructionOp op = OpOf(trace_, OwnerOf(trace_, *piece), *piece).value_or(InstructionOp::kOther);
      if (common && *common != op) return InstructionOp::kOther;
      common = op;
    }
    return common;
  }

  void DescribeCollective(const Piece& piece, Instruction& one) {
    one.op = OpOfCollective(*piece.collective);
    one.stream = streams_.Of(piece);
    one.id = std::string(Name(one.op));
    std::ranges::transform(one.id, one.id.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    written_.recognised_s += *one.time_s;
    const Call& call = piece.call;
    // Bytes are counted as nccl-tests does: a rank's whole buffer, which comes out of a gather and goes into a scatter.
    const double elements =
        one.op == InstructionOp::kAllReduce ? call.in_elements : std::max(call.in_elements, call.out_elements);
    const double bytes = elements * ElementBytes(call.element);
    if (bytes > 0 && bytes <= kMostWork) {
      one.bytes = bytes;
    } else {
      ++written_.without_bytes;
    }
    if (call.group_size < 1 || call.group_size > 1 << 20) return;
    one.group_size = call.group_size;
    if (options_.ranks_per_node > 0) one.ranks_per_node = RanksPerNode(call);
  }

  // Counts the group's ranks on this rank's node where the trace lists them; else takes them for neighbours.
  int RanksPerNode(const Call& call) const {
    const int per_node = options_.ranks_per_node;
    const int packed = std::min(call.group_size, per_node);
    if (options_.rank < 0 || static_cast<int>(call.ranks.size()) != call.group_size) return packed;
    const auto here =
        std::ranges::count_if(call.ranks, [&](int rank) { return rank / per_node == options_.rank / per_node; });
    return here > 0 ? static_cast<int>(here) : packed;
  }

  void Connect(const Group& group, Instruction& one) {
    const std::string& output = one.outputs.front();
    std::set<std::string> reads;
    if (!computed_.empty()) reads.insert(computed_);
    const bool sums = group.role == Role::kCollective && group.pieces.front()->accumulates &&
                      (one.op == InstructionOp::kAllReduce || one.op == InstructionOp::kReduceScatter);
    const double start_us = group.last_start_us();
    std::erase_if(pending_, [&](const Pending& pending) {
      if (start_us < pending.end_us) return false;
      reads.insert(pending.tensor);
      return group.role == Role::kComputes;
    });
    // Which node has called Gloo is not always known: any sum may be one of gradients.
    const bool may_sum = !work_.on_gpu && group.role == Role::kCollective && one.op != InstructionOp::kAllToAll;
    const Piece& first = *group.pieces.front();
    if (group.role == Role::kLeaf || first.accumulates || may_sum || !first.in_node || MayReadProduct(group)) {
      reads.insert(gradients_.begin(), gradients_.end());
      if (group.role != Role::kCollective || sums) gradients_.clear();
    }
    one.inputs.assign(reads.begin(), reads.end());
    switch (group.role) {
      case Role::kComputes: computed_ = output; break;
      case Role::kWeightGradient:
        product_node_ = first.owners.node;
        product_shape_ = &ShapeOf(first);
        gradients_.push_back(output);
        break;
      case Role::kLeaf: gradients_.push_back(output); break;
      case Role::kCollective:
        if (sums) {
          gradients_.push_back(output);
        } else {
          pending_.push_back({output, group.pieces.front()->end_us});
        }
    }
  }

  // Whether what the node of a weight gradient does behind it may be to that: scale it, cast it, sum it over ranks. It
  // is not where all that it reads is known to be of other sizes, as for a bias's gradient.
  bool MayReadProduct(const Group& group) const {
    if (product_node_ < 0 || group.pieces.front()->owners.node != product_node_) return false;
    if (group.role == Role::kWeightGradient || group.role == Role::kLeaf) return false;
    return std::ranges::any_of(group.pieces, [&](const Piece* piece) {
      if (piece->communicates || piece->owners.top < 0) return true;
      if (IsProduct(trace_.events[piece->owners.top].name)) return false;  // It is for another result.
      const std::vector<Shape>& read = trace_.events[piece->owners.top].shapes;
      return std::ranges::all_of(read, &Shape::empty) ||
             std::ranges::any_of(read, [&](const Shape& shape) { return SizeOf(shape) == SizeOf(*product_shape_); });
    });
  }

  const Trace& trace_;
  const StepWork& work_;
  const WeightGradients& weights_;
  const InstructionOptions& options_;
  const bool is_coarse_;
  const Streams streams_;
  double last_backward_us_ = -std::numeric_limits<double>::infinity();
  Instructions written_;
  size_t tensors_ = 0;  // Inputs and outputs of all instructions.
  std::map<std::string, Unmapped> unmapped_;
  std::string computed_;  // The output of the last computation.
  std::vector<Pending> pending_;
  std::vector<std::string> gradients_;  // Weight gradients, and sums of them, that nothing has read.
  int product_node_ = -1;               // The node of the last weight gradient, and the shape of that.
  const Shape* product_shape_ = nullptr;
};

}  // namespace

Instructions InstructionsOf(const Trace& trace, const StepWork& work, const WeightGradients& gradients,
                            const InstructionOptions& options) {
  Instructions whole = Writer(trace, work, gradients, options, /*is_coarse=*/false).Write();
  if (!whole.is_too_large) return whole;
  return Writer(trace, work, gradients, options, /*is_coarse=*/true).Write();
}

}  // namespace moeplan::kineto
