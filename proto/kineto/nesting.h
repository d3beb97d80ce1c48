// Which events of a CPU thread contain which, and to whom an event belongs.
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "proto/kineto/events.h"

namespace moeplan::kineto {

// Events by their place in Trace::events; -1: there is none.
struct Owners {
  int top = -1;              // The outermost operator that computes, inside of the next.
  int function = -1;         // The autograd function or backward node ("AddmmBackward0") around that.
  int node = -1;             // The innermost autograd::engine::evaluate_function.
  int annotation = -1;       // The innermost annotation that names a part of an MoE layer.
  int optimizer = -1;        // The optimizer's step or zero_grad.
  int call = -1;             // The innermost operator that says which collective it starts.
  int exchange = -1;         // The innermost operator of c10d.
  bool backward = false;     // An operator around it is one of the backward pass.
  bool accumulates = false;  // The node adds gradients up, or sums them over ranks once they are.
};

class Nesting {
 public:
  // The trace must outlive this.
  explicit Nesting(const Trace& trace);

  int parent(int event) const { return parents_[event]; }
  // An operator may be its own top.
  Owners OwnersOf(int event) const;
  // CPU events of each thread, in order of their start, those around others first.
  const std::vector<std::vector<int>>& threads() const { return threads_; }

  // True when some thread runs a backward node then, or a node that accumulates.
  bool BackwardAt(double at_us) const { return backward_.Has(at_us); }
  bool AccumulatesAt(double at_us) const { return accumulates_.Has(at_us); }

 private:
  // Times that some interval covers.
  class Cover {
   public:
    void Add(double start_us, double end_us) { intervals_.push_back({start_us, end_us}); }
    void Sort();
    bool Has(double at_us) const;

   private:
    struct Interval {
      double start_us, end_us;  // Sorted: the latest end of all that start no later.
    };
    std::vector<Interval> intervals_;
  };

  void Nest(std::vector<int>& events);
  // The evaluation that runs each function among the events of a thread: the first of its name that has none. Rounded
  // times may let a function begin when its evaluation ends, and even when the next one has begun.
  std::unordered_map<int, int> EvaluationsOf(std::vector<int> events) const;
  void MarkFlows();

  const Trace& trace_;
  std::vector<int> parents_;
  std::vector<std::vector<int>> threads_;
  std::vector<bool> backward_ends_;  // By event: an arrow from a forward operator ends there.
  double rounding_us_;               // An event may seem to end so much after what contains it.
  Cover backward_, accumulates_;
};

// The name of the backward node that an evaluate_function runs: "AddmmBackward0".
std::string_view NodeName(std::string_view evaluate_function);
bool IsEvaluation(std::string_view name);
// True of a node that adds a gradient to a parameter's, or runs a trainer's hook for it.
bool AccumulatesGradient(std::string_view evaluate_function);

}  // namespace moeplan::kineto
