#include "agent/compare/trace.h"

#include <nlohmann/json.hpp>

#include "models/text.h"
#include "proto/convert/plan.h"

namespace moeplan {
namespace {

using Json = nlohmann::ordered_json;

class Trace {
 public:
  void NameProcess(int process, const std::string& name) {
    Add({{"ph", "M"}, {"pid", process}, {"name", "process_name"}, {"args", {{"name", name}}}});
    Add({{"ph", "M"}, {"pid", process}, {"name", "process_sort_index"}, {"args", {{"sort_index", process}}}});
    for (int kind = 0; kind < kStreamKinds; ++kind) {
      Add({{"ph", "M"}, {"pid", process}, {"tid", kind}, {"name", "thread_name"},
           {"args", {{"name", std::string(Name(static_cast<StreamKind>(kind)))}}}});
    }
  }

  void AddTask(int process, const TaskTiming& timing) {
    constexpr double kMicrosecondsPerSecond = 1e6;
    Add({{"ph", "X"}, {"pid", process}, {"tid", static_cast<int>(timing.stream)}, {"name", timing.task},
         {"cat", std::string(Name(timing.kind))}, {"ts", timing.start_s * kMicrosecondsPerSecond},
         {"dur", (timing.end_s - timing.start_s) * kMicrosecondsPerSecond}, {"args", {{"chunk", timing.chunk}}}});
  }

  std::string Text() const { return Json{{"displayTimeUnit", "ms"}, {"traceEvents", events_}}.dump(); }

 private:
  void Add(Json event) { events_.push_back(std::move(event)); }

  Json events_ = Json::array();
};

}  // namespace

std::string ChromeTrace(const Plan& plan, const v1::RunReport& report) {
  Trace trace;
  trace.NameProcess(0, "predicted");
  for (const TaskTiming& timing : plan.timeline) trace.AddTask(0, timing);
  for (const v1::RankTimeline& rank : report.ranks()) {
    const int process = rank.rank() + 1;
    trace.NameProcess(process, StrCat("rank ", rank.rank()));
    for (const v1::TaskTiming& message : rank.timeline()) {
      if (const auto timing = TaskTimingFromProto(message, "timeline"); timing.ok()) trace.AddTask(process, *timing);
    }
  }
  return trace.Text();
}

}  // namespace moeplan
