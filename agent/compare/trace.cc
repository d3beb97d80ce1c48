#include "agent/compare/trace.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "models/text.h"
#include "models/timeline/task_timing.h"

namespace moeplan::agent {
namespace {

using Json = nlohmann::ordered_json;
using Timings = google::protobuf::RepeatedPtrField<v1::TaskTiming>;

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

  void AddTasks(int process, const Timings& timings, const TaskGraph& graph) {
    std::map<std::string_view, const v1::TaskTiming*> by_name;
    for (const v1::TaskTiming& timing : timings) {
      AddTask(process, timing);
      by_name[timing.task()] = &timing;
    }
    for (const Task& task : graph.tasks) {
      for (const TaskId before : task.dependencies) {
        const auto from = by_name.find(graph.tasks[before].name), to = by_name.find(task.name);
        if (from != by_name.end() && to != by_name.end()) AddArrow(process, *from->second, *to->second);
      }
    }
  }

  std::string Text() const { return Json{{"displayTimeUnit", "ms"}, {"traceEvents", events_}}.dump(); }

 private:
  static constexpr double kMicrosecondsPerSecond = 1e6;

  void AddTask(int process, const v1::TaskTiming& timing) {
    Add({{"ph", "X"},
         {"pid", process},
         {"tid", timing.stream()},
         {"name", timing.task()},
         {"cat", v1::Task::Kind_Name(timing.kind())},
         {"ts", timing.start_s() * kMicrosecondsPerSecond},
         {"dur", (timing.end_s() - timing.start_s()) * kMicrosecondsPerSecond},
         {"args", {{"chunk", timing.chunk()}}}});
  }

  // Both ends must lie inside their slices: an end belongs to the next one.
  void AddArrow(int process, const v1::TaskTiming& from, const v1::TaskTiming& to) {
    constexpr double kNearEnd = 0.99;
    const double from_s = from.start_s() + kNearEnd * (from.end_s() - from.start_s());
    const auto end = [&](const char* phase, const v1::TaskTiming& at, double time_s) {
      return Json{{"ph", phase},
                  {"id", arrows_},
                  {"pid", process},
                  {"tid", at.stream()},
                  {"name", "dependency"},
                  {"cat", "dependency"},
                  {"ts", time_s * kMicrosecondsPerSecond}};
    };
    Add(end("s", from, from_s));
    Json arrival = end("f", to, to.start_s());
    arrival["bp"] = "e";
    Add(std::move(arrival));
    ++arrows_;
  }

  void Add(Json event) { events_.push_back(std::move(event)); }

  Json events_ = Json::array();
  int arrows_ = 0;
};

}  // namespace

std::string ChromeTrace(const TaskGraph& graph, const v1::Plan& plan, const v1::RunReport& report) {
  Trace trace;
  trace.NameProcess(0, "predicted");
  trace.AddTasks(0, plan.timeline(), graph);
  for (const v1::RankTimeline& rank : report.ranks()) {
    const int process = rank.rank() + 1;
    trace.NameProcess(process, StrCat("rank ", rank.rank()));
    trace.AddTasks(process, rank.timeline(), graph);
  }
  return trace.Text();
}

}  // namespace moeplan::agent
