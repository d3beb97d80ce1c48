#include "proto/kineto/pieces.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "models/text.h"
#include "proto/kineto/rules.h"

namespace moeplan::kineto {
namespace {

double Elements(const Shape& shape) {
  double elements = shape.empty() ? 0 : 1;
  for (const double size : shape) elements *= size;
  return elements;
}

// Describes a call by the tensors of c10d's operator or of Gloo's annotation: the one that is sent, the one received.
Call CallByShapes(const Event& event) {
  Call call = {.name = std::string(event.name)};
  std::vector<double> tensors;
  for (size_t i = 0; i < event.shapes.size(); ++i) {
    const double elements = Elements(event.shapes[i]);
    if (elements == 0) continue;
    tensors.push_back(elements);
    if (call.element.empty() && i < event.elements.size()) call.element = event.elements[i];
  }
  if (!tensors.empty()) {
    call.in_elements = *std::ranges::min_element(tensors);
    call.out_elements = *std::ranges::max_element(tensors);
  }
  return call;
}

// Describes a piece that communicates by the nearest event that tells of it.
void TakeCall(const Trace& trace, Piece& piece) {
  const Event& event = trace.events[piece.event];
  if (event.call) {
    piece.call = *event.call;
  } else if (piece.owners.call >= 0) {
    piece.call = *trace.events[piece.owners.call].call;
  } else if (piece.owners.exchange >= 0) {
    piece.call = CallByShapes(trace.events[piece.owners.exchange]);
  } else {
    piece.call = CallByShapes(event);
  }
  piece.collective = CollectiveNamed(piece.call.name);
  if (!piece.collective) piece.collective = CollectiveNamed(event.name);
  // One rank exchanges nothing.
  if (piece.call.group_size == 1) piece.collective.reset();
}

// The total length of the intervals' union, and a way to ask for that of a part.
class Union {
 public:
  void Add(double start_us, double end_us) { parts_.push_back({start_us, end_us}); }
  void Merge() {
    std::ranges::sort(parts_);
    std::vector<std::pair<double, double>> merged;
    for (const auto& part : parts_) {
      if (!merged.empty() && part.first <= merged.back().second) {
        merged.back().second = std::max(merged.back().second, part.second);
      } else {
        merged.push_back(part);
      }
    }
    parts_ = std::move(merged);
  }
  double Within(double start_us, double end_us) const {
    double sum_us = 0;
    auto at = std::ranges::lower_bound(parts_, start_us, {}, [](const auto& part) { return part.second; });
    for (; at != parts_.end() && at->first < end_us; ++at) {
      sum_us += std::max(0.0, std::min(end_us, at->second) - std::max(start_us, at->first));
    }
    return sum_us;
  }
  double Whole() const {
    double sum_us = 0;
    for (const auto& part : parts_) sum_us += part.second - part.first;
    return sum_us;
  }

 private:
  std::vector<std::pair<double, double>> parts_;
};

class GpuWork {
 public:
  GpuWork(const Trace& trace, const Nesting& nesting) : trace_(trace), nesting_(nesting) {
    for (size_t i = 0; i < trace.events.size(); ++i) {
      const Event& event = trace.events[i];
      const int at = static_cast<int>(i);
      if (event.kind == EventKind::kLaunch && event.correlation >= 0) launches_.emplace(event.correlation, at);
      if (event.kind == EventKind::kOperator && event.external_id > 0) operators_.emplace(event.external_id, at);
    }
    autograd_threads_ = ThreadsOfAutogradAlone();
  }

  void Add(int kernel, StepWork& work) {
    const Event& event = trace_.events[kernel];
    const auto launch = launches_.find(event.correlation);
    const auto by_id = event.external_id > 0 ? operators_.find(event.external_id) : operators_.end();
    const bool launched = event.correlation >= 0 && launch != launches_.end();
    if (!launched && by_id == operators_.end()) {
      untied_.push_back(kernel);
      return;
    }
    const int origin = launched ? launch->second : by_id->second;
    Piece piece = {.event = kernel};
    piece.owners = nesting_.OwnersOf(origin);
    // A launch outside of any operator, on a thread of a library, say: Kineto's own link still holds.
    if (launched && nesting_.parent(origin) < 0 && by_id != operators_.end()) {
      piece.owners = nesting_.OwnersOf(by_id->second);
    }
    piece.launch_us = trace_.events[origin].start_us;
    piece.start_us = event.start_us;
    piece.end_us = event.end_us;
    piece.busy_us = event.end_us - event.start_us;
    piece.stream = event.thread;
    piece.backward = piece.owners.backward || autograd_threads_.contains(trace_.events[origin].thread);
    piece.in_node = piece.owners.node >= 0;
    piece.accumulates = piece.owners.accumulates;
    piece.communicates = !event.is_copy && (Communicates(event.name) || (event.call && !event.call->name.empty()));
    if (piece.communicates) TakeCall(trace_, piece);
    work.pieces.push_back(std::move(piece));
  }

  // Kernels of the steps before and after run before and after those of this one.
  size_t UntiedBetween(double start_us, double end_us) const {
    return static_cast<size_t>(std::ranges::count_if(untied_, [&](int kernel) {
      return trace_.events[kernel].start_us >= start_us && trace_.events[kernel].end_us <= end_us;
    }));
  }

 private:
  // Threads that run backward nodes and not the step itself: all that they launch is of the backward pass.
  std::set<std::int64_t> ThreadsOfAutogradAlone() const {
    std::set<std::int64_t> threads;
    for (const Event& event : trace_.events) {
      if (event.kind == EventKind::kOperator && IsEvaluation(event.name)) threads.insert(event.thread);
    }
    if (!trace_.thread) return {};
    threads.erase(*trace_.thread);
    return threads;
  }

  const Trace& trace_;
  const Nesting& nesting_;
  std::unordered_map<std::int64_t, int> launches_, operators_;
  std::set<std::int64_t> autograd_threads_;
  std::vector<int> untied_;
};

// On a CPU: outermost operators that compute, on the threads of the step and of autograd, and collectives on theirs.
class CpuWork {
 public:
  CpuWork(const Trace& trace, const Nesting& nesting) : trace_(trace), nesting_(nesting) {}

  void AddTo(StepWork& work) {
    AddExchanges(work);
    std::vector<Piece> pieces = Computing();
    std::ranges::stable_sort(pieces, {}, &Piece::start_us);
    double free_us = trace_.start_us;
    for (Piece& piece : pieces) {
      const double end_us = std::max(free_us, piece.end_us);
      if (IsView(trace_.events[piece.event].name)) continue;  // Its time is the thread's own, before the next piece.
      // The thread's own time belongs to what it runs next; while a collective is under way it waits.
      const double own_us = end_us - free_us;
      piece.busy_us = std::max(0.0, own_us - exchanges_.Within(free_us, std::max(free_us, piece.start_us)));
      free_us = end_us;
      work.pieces.push_back(std::move(piece));
    }
    MarkExchangesOfBackward(work);
  }

 private:
  void AddExchanges(StepWork& work) {
    for (size_t i = 0; i < trace_.events.size(); ++i) {
      const Event& event = trace_.events[i];
      if (event.kind != EventKind::kAnnotation || !IsOwnThreads(event.name)) continue;
      Piece piece = {.event = static_cast<int>(i)};
      piece.launch_us = piece.start_us = event.start_us;
      piece.end_us = event.end_us;
      piece.busy_us = event.end_us - event.start_us;
      piece.backward = nesting_.BackwardAt(event.start_us);
      piece.accumulates = nesting_.AccumulatesAt(event.start_us);
      piece.communicates = true;
      TakeCall(trace_, piece);
      // Threads of Gloo take turns: what no thread shows, the kind of the collective does.
      piece.stream = piece.collective == Collective::kAllToAll ? 0 : 1;
      exchanges_.Add(piece.start_us, piece.end_us);
      work.pieces.push_back(std::move(piece));
    }
    exchanges_.Merge();
  }

  // A thread of Gloo may begin when the node that called it has ended already: amidst the backward pass it is of that.
  static void MarkExchangesOfBackward(StepWork& work) {
    std::vector<std::pair<double, bool>> computed;  // Start, and whether it is of the backward pass.
    for (const Piece& piece : work.pieces) {
      if (!piece.communicates) computed.emplace_back(piece.start_us, piece.backward);
    }
    for (Piece& piece : work.pieces) {
      if (!piece.communicates) continue;
      const auto next = std::ranges::upper_bound(computed, piece.start_us, {}, &std::pair<double, bool>::first);
      const bool amidst = next != computed.begin() && next != computed.end() && std::prev(next)->second && next->second;
      piece.in_node = piece.backward = piece.backward || amidst;
    }
  }

  std::vector<Piece> Computing() const {
    std::vector<Piece> pieces;
    for (const std::vector<int>& thread : nesting_.threads()) {
      if (!Counts(thread)) continue;
      for (const int event : thread) {
        const Event& one = trace_.events[event];
        if (one.kind != EventKind::kOperator || !IsKernelLike(one.name)) continue;
        Piece piece = {.event = event, .owners = nesting_.OwnersOf(event)};
        if (piece.owners.top != event) continue;
        piece.launch_us = piece.start_us = one.start_us;
        piece.end_us = one.end_us;
        piece.backward = piece.owners.backward;
        piece.in_node = piece.owners.node >= 0;
        piece.accumulates = piece.owners.accumulates;
        pieces.push_back(std::move(piece));
      }
    }
    return pieces;
  }

  bool Counts(const std::vector<int>& thread) const {
    if (!trace_.thread || trace_.events[thread.front()].thread == *trace_.thread) return true;
    return std::ranges::any_of(thread, [&](int event) { return IsEvaluation(trace_.events[event].name); });
  }

  const Trace& trace_;
  const Nesting& nesting_;
  Union exchanges_;
};

}  // namespace

StatusOr<StepWork> WorkOf(const Trace& trace, const Nesting& nesting) {
  StepWork work;
  GpuWork gpu(trace, nesting);
  size_t kernels = 0;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    if (trace.events[i].kind != EventKind::kKernel) continue;
    ++kernels;
    gpu.Add(static_cast<int>(i), work);
  }
  work.on_gpu = kernels > 0;
  if (work.on_gpu && work.pieces.empty()) {
    return InvalidInput(StrCat("found ", kernels,
                               " kernels and none that an operator of the step has launched, "
                               "expected a profile with ProfilerActivity.CPU and ProfilerActivity.CUDA"));
  }
  if (!work.on_gpu) CpuWork(trace, nesting).AddTo(work);
  if (work.pieces.empty()) return InvalidInput("found no work in the step, expected operators or kernels");
  std::ranges::stable_sort(work.pieces, [](const Piece& a, const Piece& b) {
    return std::pair(a.launch_us, a.start_us) < std::pair(b.launch_us, b.start_us);
  });
  Union busy;
  double first_us = work.pieces.front().start_us, last_us = work.pieces.front().end_us;
  for (const Piece& piece : work.pieces) {
    busy.Add(piece.start_us, piece.end_us);
    first_us = std::min(first_us, piece.start_us);
    last_us = std::max(last_us, piece.end_us);
  }
  busy.Merge();
  work.busy_us = busy.Whole();
  work.untied = gpu.UntiedBetween(first_us, last_us);
  work.wall_us = work.on_gpu ? last_us - first_us : trace.end_us - trace.start_us;
  return work;
}

}  // namespace moeplan::kineto
