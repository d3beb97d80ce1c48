#include "models/schedule/gradient_slices.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "models/schedule/streams.h"
#include "models/text.h"

namespace moeplan {
namespace {

Status BadSlice(size_t slice, const char* field, const std::string& found, const std::string& expected) {
  return InvalidInput(StrCat("gradients.slices[", slice, "].", field, ": found ", found, ", expected ", expected));
}

class SliceInsertion {
 public:
  SliceInsertion(TaskGraph graph, std::span<const GradientSlice> slices)
      : graph_(std::move(graph)),
        slices_(slices),
        stream_(StreamOf(Group::kDenseReplicas, graph_.layout, graph_.gpus_per_node)) {
    for (TaskId task = 0; task < static_cast<TaskId>(graph_.tasks.size()); ++task) {
      by_name_.emplace(graph_.tasks[task].name, task);
    }
  }

  StatusOr<TaskGraph> Run() && {
    for (size_t slice = 0; slice < slices_.size(); ++slice) RETURN_IF_ERROR(Place(slice));
    std::vector<Task> tasks;
    std::vector<TaskId> moved;  // By old number.
    TaskId first_backward = 0;
    size_t next = 0;
    for (TaskId old = 0; old <= static_cast<TaskId>(graph_.tasks.size()); ++old) {
      if (old == graph_.first_backward) first_backward = static_cast<TaskId>(tasks.size());
      for (; next < slices_.size() && places_[next].before == old; ++next) tasks.push_back(TaskOf(next, moved));
      if (old == static_cast<TaskId>(graph_.tasks.size())) break;
      moved.push_back(static_cast<TaskId>(tasks.size()));
      tasks.push_back(std::move(graph_.tasks[old]));
      for (TaskId& dependency : tasks.back().dependencies) dependency = moved[dependency];
    }
    graph_.tasks = std::move(tasks);
    graph_.first_backward = first_backward;
    return std::move(graph_);
  }

 private:
  struct PlaceOfSlice {
    TaskId before = 0;  // The number of tasks: after all.
    TaskId after = -1;  // -1: nothing.
  };

  Status Place(size_t slice) {
    const GradientSlice& given = slices_[slice];
    const TaskId end = static_cast<TaskId>(graph_.tasks.size());
    PlaceOfSlice place = {.before = end};
    const int element = graph_.layer.bytes_per_element;
    if (!(std::isfinite(given.bytes) && given.bytes > 0 && std::fmod(given.bytes, element) == 0)) {
      return BadSlice(slice, "bytes", StrCat(given.bytes),
                      StrCat("whole elements of ", element, " bytes, at least one"));
    }
    if (!given.before_task.empty()) {
      const auto found = by_name_.find(given.before_task);
      const bool fits = found != by_name_.end() && found->second >= graph_.first_backward &&
                        graph_.tasks[found->second].stream == stream_;
      if (!fits) {
        return BadSlice(slice, "beforeTask", given.before_task,
                        StrCat("a backward task of the schedule on ", Name(stream_)));
      }
      place.before = found->second;
    } else if (graph_.first_backward == end) {
      return BadSlice(slice, "beforeTask", "a forward pass", "a schedule with backward tasks");
    }
    if (!given.after_task.empty()) {
      const auto found = by_name_.find(given.after_task);
      if (found == by_name_.end() || found->second >= place.before) {
        return BadSlice(slice, "afterTask", given.after_task,
                        "a task of the schedule that is launched before the slice");
      }
      place.after = found->second;
    }
    if (!places_.empty() && place.before < places_.back().before) {
      return BadSlice(slice, "beforeTask", given.before_task, "slices in launch order");
    }
    places_.push_back(place);
    return OkStatus();
  }

  Task TaskOf(size_t slice, const std::vector<TaskId>& moved) {
    const std::string name = SliceName(slice);
    const double bytes = slices_[slice].bytes;
    const BufferId buffer = static_cast<BufferId>(graph_.buffers.size());
    graph_.buffers.push_back({.name = name, .rows_per_cell = 1, .expected_rows_per_cell = 1, .row_bytes = bytes});
    Task task = {
        .name = name,
        .kind = TaskKind::kAllReduce,
        .stream = stream_,
        .size = bytes,
        .op = CollectiveOp{
            .collective = Collective::kAllReduce, .group = Group::kDenseReplicas, .in = buffer, .out = buffer}};
    if (const TaskId after = places_[slice].after; after >= 0) task.dependencies = {moved[after]};
    return task;
  }

  TaskGraph graph_;
  const std::span<const GradientSlice> slices_;
  const StreamKind stream_;
  std::map<std::string, TaskId> by_name_;
  std::vector<PlaceOfSlice> places_;  // By slice.
};

}  // namespace

std::string SliceName(size_t slice) { return StrCat("dense_gradients.", slice + 1); }

StatusOr<TaskGraph> WithGradientSlices(TaskGraph graph, std::span<const GradientSlice> slices) {
  if (slices.empty()) return graph;
  return SliceInsertion(std::move(graph), slices).Run();
}

}  // namespace moeplan
