#include "proto/kineto/nesting.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <utility>

#include "proto/kineto/rules.h"

namespace moeplan::kineto {
namespace {

// Operators are some tens deep. What is deeper counts as a child of the last of these, as owners are found by going
// out.
constexpr size_t kDeepest = 1000;
constexpr std::string_view kEvaluation = "autograd::engine::evaluate_function: ";
// Starts and durations are each rounded: to nanoseconds, and by older releases to microseconds.
double RoundingUs(const Trace& trace) {
  const bool is_fine = std::ranges::any_of(
      trace.events, [](const Event& event) { return event.start_us != std::floor(event.start_us); });
  return is_fine ? 2e-3 : 2;
}

}  // namespace

bool IsEvaluation(std::string_view name) { return name.starts_with(kEvaluation); }

std::string_view NodeName(std::string_view evaluate_function) {
  return IsEvaluation(evaluate_function) ? evaluate_function.substr(kEvaluation.size()) : evaluate_function;
}

bool AccumulatesGradient(std::string_view evaluate_function) {
  // FSDP's second version reduces gradients in the way back of a function of its own.
  const std::string_view node = NodeName(evaluate_function);
  return IsEvaluation(evaluate_function) &&
         (node == "torch::autograd::AccumulateGrad" || node == "RegisterPostBackwardFunctionBackward");
}

void Nesting::Cover::Sort() {
  std::ranges::sort(intervals_, {}, &Interval::start_us);
  for (size_t i = 1; i < intervals_.size(); ++i) {
    intervals_[i].end_us = std::max(intervals_[i].end_us, intervals_[i - 1].end_us);
  }
}

bool Nesting::Cover::Has(double at_us) const {
  const auto after = std::ranges::upper_bound(intervals_, at_us, {}, &Interval::start_us);
  return after != intervals_.begin() && std::prev(after)->end_us >= at_us;
}

Nesting::Nesting(const Trace& trace)
    : trace_(trace),
      parents_(trace.events.size(), -1),
      backward_ends_(trace.events.size(), false),
      rounding_us_(RoundingUs(trace)) {
  std::map<std::int64_t, std::vector<int>> threads;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Event& event = trace.events[i];
    if (event.kind == EventKind::kKernel || (event.kind == EventKind::kAnnotation && IsOwnThreads(event.name)))
      continue;
    threads[event.thread].push_back(static_cast<int>(i));
    if (IsEvaluation(event.name)) backward_.Add(event.start_us, event.end_us);
    if (AccumulatesGradient(event.name)) accumulates_.Add(event.start_us, event.end_us);
  }
  backward_.Sort();
  accumulates_.Sort();
  for (auto& [thread, events] : threads) {
    Nest(events);
    threads_.push_back(std::move(events));
  }
  MarkFlows();
}

void Nesting::Nest(std::vector<int>& events) {
  const auto& all = trace_.events;
  std::ranges::stable_sort(events, [&](int a, int b) {
    if (all[a].start_us != all[b].start_us) return all[a].start_us < all[b].start_us;
    // A launch takes place inside of the operators that start with it.
    const bool launches = all[a].kind == EventKind::kLaunch, other_launches = all[b].kind == EventKind::kLaunch;
    if (launches != other_launches) return other_launches;
    if (all[a].end_us != all[b].end_us) return all[a].end_us > all[b].end_us;
    return IsEvaluation(all[a].name) && !IsEvaluation(all[b].name);
  });
  const std::unordered_map<int, int> evaluations = EvaluationsOf(events);
  std::vector<int> around;
  for (const int event : events) {
    if (const auto evaluation = evaluations.find(event); evaluation != evaluations.end()) {
      parents_[event] = evaluation->second;
      const auto at = std::ranges::find(around, evaluation->second);
      if (at == around.end()) continue;  // By rounded times it had ended, and the next one begun.
      around.erase(at + 1, around.end());
      around.push_back(event);
      continue;
    }
    // Neither an event that ended before nor one that ends amidst contains this one.
    while (!around.empty() && (all[around.back()].end_us <= all[event].start_us ||
                               all[around.back()].end_us + rounding_us_ < all[event].end_us)) {
      around.pop_back();
    }
    parents_[event] = around.empty() ? -1 : around.back();
    if (all[event].kind != EventKind::kLaunch && around.size() < kDeepest) around.push_back(event);
  }
}

std::unordered_map<int, int> Nesting::EvaluationsOf(std::vector<int> events) const {
  const auto& all = trace_.events;
  // Events that begin in one microsecond stand in the order of the file.
  std::ranges::sort(events,
                    [&](int a, int b) { return std::pair(all[a].start_us, a) < std::pair(all[b].start_us, b); });
  std::unordered_map<int, int> evaluations;
  std::map<std::string_view, std::deque<int>> open;  // By the function's name: those without one so far.
  for (const int event : events) {
    const Event& one = all[event];
    if (IsEvaluation(one.name)) {
      open[NodeName(one.name)].push_back(event);
      continue;
    }
    const auto waiting = open.find(one.name);
    if (waiting == open.end()) continue;
    std::deque<int>& queue = waiting->second;
    while (!queue.empty() && all[queue.front()].end_us + rounding_us_ <= one.start_us) queue.pop_front();
    if (queue.empty() || one.end_us > all[queue.front()].end_us + rounding_us_) continue;
    evaluations[event] = queue.front();
    queue.pop_front();
  }
  return evaluations;
}

void Nesting::MarkFlows() {
  if (trace_.flows.empty()) return;
  std::map<std::pair<std::int64_t, double>, int> operators;
  for (const std::vector<int>& events : threads_) {
    for (const int event : events) {
      if (trace_.events[event].kind != EventKind::kOperator) continue;
      operators.emplace(std::pair(trace_.events[event].thread, trace_.events[event].start_us), event);
    }
  }
  for (const FlowEnd& end : trace_.flows) {
    if (end.is_start) continue;
    const auto at = operators.find({end.thread, end.at_us});
    if (at != operators.end()) backward_ends_[at->second] = true;
  }
}

Owners Nesting::OwnersOf(int event) const {
  Owners owners;
  bool in_function = false;  // Nothing further out than the function is `top`.
  for (int at = event; at >= 0; at = parents_[at]) {
    const Event& one = trace_.events[at];
    if (one.kind == EventKind::kLaunch) continue;
    if (one.kind == EventKind::kAnnotation) {
      if (owners.annotation < 0 && OpOfAnnotation(one.name)) owners.annotation = at;
      if (one.name.starts_with("Optimizer.")) owners.optimizer = at;
      continue;
    }
    owners.backward = owners.backward || one.backward || backward_ends_[at];
    if (owners.call < 0 && one.call) owners.call = at;
    if (owners.exchange < 0 && one.name.starts_with("c10d::")) owners.exchange = at;
    if (IsEvaluation(one.name)) {
      owners.backward = true;
      owners.accumulates = owners.accumulates || AccumulatesGradient(one.name);
      if (owners.node < 0) owners.node = at;
      in_function = true;
    } else if (IsKernelLike(one.name)) {
      if (!in_function) owners.top = at;
    } else {
      if (!in_function && !one.name.starts_with("c10d") && one.name != "record_param_comms") owners.function = at;
      in_function = true;
    }
  }
  return owners;
}

}  // namespace moeplan::kineto
