#include "cli/step_trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/text.h"

namespace moeplan::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostMicroBatches = 256;
constexpr double kMicrosecondsPerSecond = 1e6;
enum Process { kWholeStep = 1, kTwoBatches = 2 };
enum Thread { kStep = 1, kHidden = 2, kCompute = 3, kExchanges = 4 };

class StepTracer {
 public:
  explicit StepTracer(const v1::StepResult& step) : step_(step) {
    Name(kWholeStep, kStep, "step"), Name(kWholeStep, kHidden, "hidden");
  }

  std::string Write(int micro_batches, const Timeline& beside) {
    const v1::StepPart* bubble = Find("bubble");
    const double waits_s = bubble == nullptr ? 0 : bubble->exposed_s() / 2;
    Add("bubble", waits_s, 0, "");
    const int shown = std::min(micro_batches, kMostMicroBatches);
    for (int i = 0; i < shown; ++i) AddPasses(i, 1.0 / micro_batches);
    AddRest(micro_batches - shown, micro_batches);
    Add("bubble", waits_s, 0, "");
    for (const v1::StepPart& part : step_.parts()) {
      if (IsAfter(part)) Add(part.part(), part.exposed_s(), part.backward_s() - part.exposed_s(), "update");
    }
    if (!beside.empty()) AddTwoBatches(beside);
    return Json{{"displayTimeUnit", "ms"}, {"traceEvents", events_}}.dump();
  }

 private:
  static bool IsAfter(const v1::StepPart& part) { return part.part() == "gradients" || part.part() == "optimizer"; }
  static bool IsOfPasses(const v1::StepPart& part) { return !IsAfter(part) && part.part() != "bubble"; }

  const v1::StepPart* Find(std::string_view name) const {
    const auto found = std::ranges::find_if(step_.parts(), [&](const auto& part) { return part.part() == name; });
    return found == step_.parts().end() ? nullptr : &*found;
  }

  // How much of a part's busy time the step is longer for.
  static double ExposedShare(const v1::StepPart& part) {
    const double busy_s = part.forward_s() + part.backward_s();
    return busy_s > 0 ? std::clamp(part.exposed_s() / busy_s, 0.0, 1.0) : 0;
  }

  void AddPasses(int micro_batch, double share) {
    for (const bool forward : {true, false}) {
      const std::string category = StrCat(forward ? "forward " : "backward ", micro_batch + 1);
      for (const v1::StepPart& part : step_.parts()) {
        if (!IsOfPasses(part)) continue;
        const double busy_s = share * (forward ? part.forward_s() : part.backward_s()), exposed = ExposedShare(part);
        Add(part.part(), exposed * busy_s, (1 - exposed) * busy_s, category);
      }
    }
  }

  void AddRest(int rest, int micro_batches) {
    double all_s = 0;
    for (const v1::StepPart& part : step_.parts()) {
      if (IsOfPasses(part)) all_s += ExposedShare(part) * (part.forward_s() + part.backward_s());
    }
    Add(StrCat(rest, " more micro-batches"), all_s * rest / micro_batches, 0, "");
  }

  // A slice on the step, and one beside it that starts with it.
  void Add(const std::string& name, double exposed_s, double hidden_s, const std::string& category) {
    AddSlice({kWholeStep, kHidden}, name, now_s_, hidden_s, category);
    AddSlice({kWholeStep, kStep}, name, now_s_, exposed_s, category);
    now_s_ += std::max(0.0, exposed_s);
  }

  void AddTwoBatches(const Timeline& beside) {
    events_.push_back({{"ph", "M"},
                       {"pid", static_cast<int>(kTwoBatches)},
                       {"name", "process_name"},
                       {"args", {{"name", "layers of two micro-batches beside each other"}}}});
    Name(kTwoBatches, kCompute, "compute"), Name(kTwoBatches, kExchanges, "exchanges");
    for (const TaskTiming& task : beside) {
      const Thread thread = task.stream == StreamKind::kCompute ? kCompute : kExchanges;
      AddSlice({kTwoBatches, thread}, task.task, task.start_s, task.end_s - task.start_s, "");
    }
  }

  struct Row {
    Process process;
    Thread thread;
  };
  void AddSlice(const Row& row, const std::string& name, double start_s, double length_s, const std::string& category) {
    if (length_s <= 0) return;
    events_.push_back({{"ph", "X"},
                       {"pid", static_cast<int>(row.process)},
                       {"tid", static_cast<int>(row.thread)},
                       {"name", name},
                       {"cat", category},
                       {"ts", start_s * kMicrosecondsPerSecond},
                       {"dur", length_s * kMicrosecondsPerSecond}});
  }

  void Name(Process process, Thread thread, const char* name) {
    events_.push_back({{"ph", "M"},
                       {"pid", static_cast<int>(process)},
                       {"tid", static_cast<int>(thread)},
                       {"name", "thread_name"},
                       {"args", {{"name", name}}}});
  }

  const v1::StepResult& step_;
  Json events_ = Json::array();
  double now_s_ = 0;
};

}  // namespace

std::string StepTrace(const v1::StepResult& step, int micro_batches, const Timeline& beside) {
  return StepTracer(step).Write(std::max(1, micro_batches), beside);
}

}  // namespace moeplan::cli
