#include "agent/compare/trace.h"

#include <nlohmann/json.hpp>

#include "models/text.h"

namespace moeplan {
namespace {

using Json = nlohmann::ordered_json;

class Trace {
 public:
  void NameProcess(int process, const std::string& name) {
    Add({{"ph", "M"}, {"pid", process}, {"name", "process_name"}, {"args", {{"name", name}}}});
    Add({{"ph", "M"}, {"pid", process}, {"name", "process_sort_index"}, {"args", {{"sort_index", process}}}});
    for (const auto stream : {v1::Stream::COMPUTE, v1::Stream::INTRA_NODE, v1::Stream::INTER_NODE, v1::Stream::COPY}) {
      Add({{"ph", "M"},
           {"pid", process},
           {"tid", static_cast<int>(stream)},
           {"name", "thread_name"},
           {"args", {{"name", v1::Stream::Kind_Name(stream)}}}});
    }
  }

  void AddTask(int process, const v1::TaskTiming& timing) {
    constexpr double kMicrosecondsPerSecond = 1e6;
    Add({{"ph", "X"},
         {"pid", process},
         {"tid", timing.stream()},
         {"name", timing.task()},
         {"cat", v1::Task::Kind_Name(timing.kind())},
         {"ts", timing.start_s() * kMicrosecondsPerSecond},
         {"dur", (timing.end_s() - timing.start_s()) * kMicrosecondsPerSecond},
         {"args", {{"chunk", timing.chunk()}}}});
  }

  std::string Text() const { return Json{{"displayTimeUnit", "ms"}, {"traceEvents", events_}}.dump(); }

 private:
  void Add(Json event) { events_.push_back(std::move(event)); }

  Json events_ = Json::array();
};

}  // namespace

std::string ChromeTrace(const v1::Plan& plan, const v1::RunReport& report) {
  Trace trace;
  trace.NameProcess(0, "predicted");
  for (const v1::TaskTiming& timing : plan.timeline()) trace.AddTask(0, timing);
  for (const v1::RankTimeline& rank : report.ranks()) {
    const int process = rank.rank() + 1;
    trace.NameProcess(process, StrCat("rank ", rank.rank()));
    for (const v1::TaskTiming& timing : rank.timeline()) trace.AddTask(process, timing);
  }
  return trace.Text();
}

}  // namespace moeplan
