// The events of one step in a trace of torch.profiler (Kineto), with the members that a training graph needs.
//
// Sources: pytorch/kineto, libkineto/src/output_json.cpp (how events are written), and pytorch/pytorch,
// torch/csrc/profiler (which fields an operator has).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace moeplan::kineto {

// A step with more events is refused.
inline constexpr size_t kMostEvents = 2'000'000;
inline constexpr size_t kMostNameBytes = size_t{256} << 20;  // All different names together.
inline constexpr size_t kLongestEventName = 512;             // Longer ones are cut.
inline constexpr size_t kMostShapes = 8;                     // The first so many of an operator's inputs are kept,
inline constexpr size_t kMostDimensions = 8;                 // and an input of more dimensions has no shape.
inline constexpr size_t kMostGroupRanks = 1 << 16;

using Shape = std::vector<double>;

// A collective as PyTorch describes it, at its operator record_param_comms or at the kernel itself.
struct Call {
  std::string name;     // As "all_to_allv" or "_reduce_scatter_base".
  std::string element;  // As "BFloat16".
  double in_elements = 0, out_elements = 0;
  int group_size = 0;      // 0: not said.
  std::vector<int> ranks;  // The group's; empty where the trace does not list them all.
};

enum class EventKind {
  kOperator,    // On a CPU thread; PyTorch's and those of libraries.
  kAnnotation,  // On a CPU thread; record_function, ProfilerStep, Optimizer.step.
  kLaunch,      // A call of the CUDA runtime or driver on a CPU thread.
  kKernel,      // On a stream; copies and sets of memory too.
};

struct Event {
  EventKind kind = EventKind::kOperator;
  std::string_view name = {};  // In Trace::names.
  double start_us = 0, end_us = 0;
  std::int64_t process = 0;  // The device of a kernel.
  std::int64_t thread = 0;   // The stream of a kernel.
  std::int64_t correlation = -1, external_id = -1;
  std::int64_t sequence = -1;                   // Autograd's number; a backward operator has that of its forward one.
  bool backward = false;                        // Its "Fwd thread id" says so.
  bool is_copy = false;                         // A copy or a set of memory, not a kernel.
  std::vector<Shape> shapes = {};               // One for each input; empty for what is no tensor.
  std::vector<std::string_view> elements = {};  // Likewise, as "c10::BFloat16"; in Trace::names.
  std::optional<Call> call = {};
  size_t line = 0;
};

// An end of an arrow that Kineto draws from a forward operator to its backward one.
struct FlowEnd {
  std::int64_t id = 0, thread = 0;
  double at_us = 0;
  bool is_start = false;
};

struct Trace {
  std::unordered_set<std::string> names;
  std::vector<Event> events;
  std::vector<FlowEnd> flows;
  std::string step;                    // "ProfilerStep#3", or empty where the trace names none.
  double start_us = 0, end_us = 0;     // The step's.
  std::optional<std::int64_t> thread;  // It runs the step; absent where the trace names no step.
  std::optional<int> rank;
  size_t steps = 0;         // In the whole trace.
  size_t other_events = 0;  // In the step, of other processes.

  Trace() = default;
  Trace(Trace&&) = default;
  Trace& operator=(Trace&&) = default;
};

}  // namespace moeplan::kineto
