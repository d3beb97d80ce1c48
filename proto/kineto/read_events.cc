#include "proto/kineto/read_events.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "models/text.h"
#include "proto/kineto/event_parser.h"

namespace moeplan::kineto {
namespace {

constexpr std::string_view kStep = "ProfilerStep#";
constexpr size_t kMostSteps = 100'000;

// Older and newer releases of PyTorch have different names for the kinds of events.
std::optional<EventKind> KindOf(const RawEvent& event) {
  const std::string& category = event.category;
  if (event.phase != "X") return std::nullopt;
  if (category == "cpu_op" || category == "Operator") {
    return event.name.starts_with(kStep) ? EventKind::kAnnotation : EventKind::kOperator;
  }
  if (category == "user_annotation") return EventKind::kAnnotation;
  if (category == "cuda_runtime" || category == "cuda_driver" || category == "Runtime") return EventKind::kLaunch;
  if (category == "kernel" || category == "Kernel") return EventKind::kKernel;
  if (category == "gpu_memcpy" || category == "gpu_memset" || category == "Memcpy" || category == "Memset") {
    return EventKind::kKernel;
  }
  return std::nullopt;
}

bool Runs(const RawEvent& event) { return event.process && event.thread && event.duration_us >= 0; }

struct StepWindow {
  int number = 0;
  std::string name;
  double start_us = 0, end_us = 0;
  std::int64_t process = 0, thread = 0;
  bool has_backward = false, has_optimizer = false;
};

// Finds the steps of a trace.
class StepFinder {
 public:
  Status Take(const RawEvent& event) {
    const std::optional<EventKind> kind = KindOf(event);
    if (!kind || !Runs(event)) return OkStatus();
    if (*kind == EventKind::kKernel || *kind == EventKind::kLaunch) return OkStatus();
    const double end_us = event.start_us + event.duration_us;
    whole_.start_us = operators_ == 0 ? event.start_us : std::min(whole_.start_us, event.start_us);
    whole_.end_us = operators_ == 0 ? end_us : std::max(whole_.end_us, end_us);
    if (operators_++ == 0) whole_.process = *event.process;
    if (event.name.starts_with(kStep)) return AddStep(event);
    if (event.name.starts_with("Optimizer.step#")) optimizers_us_.push_back(event.start_us);
    if (event.name.starts_with("autograd::engine::evaluate_function")) backward_us_.push_back(event.start_us);
    if (optimizers_us_.size() + backward_us_.size() > 10 * kMostEvents) {
      return InvalidInput("found too many backward operators, expected a trace of a few steps");
    }
    return OkStatus();
  }

  StatusOr<StepWindow> Chosen(std::optional<int> step) {
    if (operators_ == 0) {
      return InvalidInput("found no operators, expected a profile with ProfilerActivity.CPU beside the GPU's");
    }
    if (steps_.empty()) return Whole(step);
    Mark();
    if (step) return Numbered(*step);
    const bool optimizes = std::ranges::any_of(steps_, &StepWindow::has_optimizer);
    for (auto at = steps_.rbegin(); at != steps_.rend(); ++at) {
      if (at->has_backward && (at->has_optimizer || !optimizes)) return *at;
    }
    return InvalidInput(
        StrCat("found ", steps_.size(), " steps and no backward pass in any, expected a training step"));
  }
  size_t steps() const { return steps_.size(); }

 private:
  Status AddStep(const RawEvent& event) {
    StepWindow one = {
        .name = event.name, .start_us = event.start_us, .process = *event.process, .thread = *event.thread};
    one.end_us = event.start_us + event.duration_us;
    const char* const digits = event.name.data() + kStep.size();
    if (std::from_chars(digits, event.name.data() + event.name.size(), one.number).ec != std::errc()) return OkStatus();
    if (steps_.size() == kMostSteps) {
      return InvalidInput(StrCat("found more than ", kMostSteps, " steps, expected fewer"));
    }
    steps_.push_back(std::move(one));
    return OkStatus();
  }

  void Mark() {
    std::ranges::sort(steps_, {}, &StepWindow::start_us);
    std::ranges::sort(optimizers_us_);
    std::ranges::sort(backward_us_);
    const auto any = [](const std::vector<double>& times_us, const StepWindow& step) {
      const auto at = std::ranges::lower_bound(times_us, step.start_us);
      return at != times_us.end() && *at < step.end_us;
    };
    for (StepWindow& step : steps_) {
      step.has_backward = any(backward_us_, step);
      step.has_optimizer = any(optimizers_us_, step);
    }
  }

  StatusOr<StepWindow> Whole(std::optional<int> step) const {
    const std::string mend = "call profiler.step() behind each training step";
    if (step) return InvalidInput(StrCat("--step: found ", *step, " but no ProfilerStep in the trace; ", mend));
    if (optimizers_us_.size() > 1) {
      return InvalidInput(StrCat("found no ProfilerStep and ", optimizers_us_.size(),
                                 " optimizer steps, expected one training step; ", mend));
    }
    if (backward_us_.empty()) return InvalidInput("found no backward pass, expected a training step");
    return whole_;
  }

  StatusOr<StepWindow> Numbered(int number) const {
    for (auto at = steps_.rbegin(); at != steps_.rend(); ++at) {
      if (at->number == number) return *at;
    }
    return InvalidInput(StrCat("--step: found ", number, ", expected one of the ", steps_.size(), " steps from ",
                               steps_.front().name, " to ", steps_.back().name));
  }

  size_t operators_ = 0;
  StepWindow whole_;
  std::vector<StepWindow> steps_;
  std::vector<double> optimizers_us_, backward_us_;
};

// Keeps the events of a step.
class StepReader {
 public:
  explicit StepReader(const StepWindow& step) : process_(step.process) {
    trace_.step = step.name;
    trace_.start_us = step.start_us;
    trace_.end_us = step.end_us;
    if (!step.name.empty()) trace_.thread = step.thread;
  }

  Status Take(RawEvent& raw) {
    if (raw.category == "fwdbwd") return TakeFlow(raw);
    const std::optional<EventKind> kind = KindOf(raw);
    // Kernels run behind what launched them, so that those of the step may end after it.
    const bool in_step =
        raw.start_us >= trace_.start_us && (kind == EventKind::kKernel || raw.start_us <= trace_.end_us);
    if (!kind || !Runs(raw) || !in_step) return OkStatus();
    if (*kind != EventKind::kKernel && *raw.process != process_) {
      ++trace_.other_events;
      return OkStatus();
    }
    RETURN_IF_ERROR(CheckRoom());
    Event event = {.kind = *kind, .start_us = raw.start_us, .end_us = raw.start_us + raw.duration_us};
    ASSIGN_OR_RETURN(event.name, Kept(raw.name));
    event.process = *raw.process;
    event.thread = *kind == EventKind::kKernel ? raw.stream.value_or(*raw.thread) : *raw.thread;
    event.correlation = raw.correlation.value_or(-1);
    event.external_id = raw.external_id.value_or(-1);
    event.sequence = raw.sequence.value_or(-1);
    event.backward = raw.sequence && raw.forward_thread.value_or(0) > 0;
    event.is_copy = *kind == EventKind::kKernel && raw.category != "kernel" && raw.category != "Kernel";
    event.shapes = std::move(raw.shapes);
    for (const std::string& element : raw.elements) {
      ASSIGN_OR_RETURN(const std::string_view name, Kept(element.substr(0, kLongestEventName)));
      event.elements.push_back(name);
    }
    if (!raw.call.name.empty()) event.call = std::move(raw.call);
    event.line = raw.line;
    trace_.events.push_back(std::move(event));
    return OkStatus();
  }

  Trace Done() { return std::move(trace_); }

 private:
  Status CheckRoom() const {
    if (trace_.events.size() + trace_.flows.size() < kMostEvents) return OkStatus();
    return InvalidInput(
        StrCat("found more than ", kMostEvents, " events in one step, expected fewer: trace fewer micro-batches"));
  }

  Status TakeFlow(const RawEvent& raw) {
    const bool in_step = raw.start_us >= trace_.start_us && raw.start_us <= trace_.end_us;
    if (!raw.id || !raw.thread || !in_step || (raw.phase != "s" && raw.phase != "f")) return OkStatus();
    RETURN_IF_ERROR(CheckRoom());
    trace_.flows.push_back({.id = *raw.id, .thread = *raw.thread, .at_us = raw.start_us, .is_start = raw.phase == "s"});
    return OkStatus();
  }

  StatusOr<std::string_view> Kept(const std::string& name) {
    const auto [at, is_new] = trace_.names.insert(name);
    if (is_new) name_bytes_ += name.size();
    if (name_bytes_ > kMostNameBytes) {
      return InvalidInput(StrCat("found more than ", kMostNameBytes, " bytes of different names, expected fewer"));
    }
    return std::string_view(*at);
  }

  std::int64_t process_;
  Trace trace_;
  size_t name_bytes_ = 0;
};

}  // namespace

StatusOr<Trace> ReadStep(const OpenTrace& open, std::optional<int> step) {
  StepFinder finder;
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<TraceBytes> bytes, open());
    ASSIGN_OR_RETURN([[maybe_unused]] const TraceHeader header,
                     ParseEvents(*bytes, [&](RawEvent& event) { return finder.Take(event); }));
  }
  ASSIGN_OR_RETURN(const StepWindow window, finder.Chosen(step));
  StepReader reader(window);
  ASSIGN_OR_RETURN(const std::unique_ptr<TraceBytes> bytes, open());
  ASSIGN_OR_RETURN(const TraceHeader header, ParseEvents(*bytes, [&](RawEvent& event) { return reader.Take(event); }));
  Trace trace = reader.Done();
  trace.rank = header.rank;
  trace.steps = finder.steps();
  return trace;
}

}  // namespace moeplan::kineto
