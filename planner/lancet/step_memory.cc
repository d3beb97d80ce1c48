#include "planner/lancet/step_memory.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace moeplan::planner {
namespace {

// Adds up what comes and goes in the order of time.
class Ledger {
 public:
  void Add(double bytes, double start_s, double end_s) {
    changes_.emplace_back(start_s, bytes);
    changes_.emplace_back(end_s, -bytes);
  }

  // At the same moment, what goes makes room for what comes.
  double Peak() {
    std::ranges::sort(changes_);
    double now = 0, most = 0;
    for (const auto& [at_s, bytes] : changes_) most = std::max(most, now += bytes);
    return most;
  }

 private:
  std::vector<std::pair<double, double>> changes_;  // When, and by how many bytes.
};

}  // namespace

// When the launches of each instruction run.
class StepMemory::Launches {
 public:
  Launches(const StepTasks& tasks, const PlayedGraph& played, size_t instructions)
      : played_(played), parts_(instructions), join_(instructions, -1) {
    for (int id = 0; id < static_cast<int>(tasks.tasks.size()); ++id) {
      const StepTask& one = tasks.tasks[id];
      if (one.role == StepRole::kJoin) join_[one.instruction] = id;
      if (one.role != StepRole::kPart) continue;
      std::vector<int>& parts = parts_[one.instruction];
      parts.resize(one.parts, -1);
      parts[tasks.graph.tasks[id].chunk] = id;
    }
  }

  const std::vector<int>& Of(int instruction) const { return parts_[instruction]; }
  int JoinOf(int instruction) const { return join_[instruction]; }
  double StartS(int task) const { return played_.start_s[task]; }
  double EndS(int task) const { return played_.end_s[task]; }

  // The end of all launches of an instruction.
  double LastEndS(int instruction) const {
    double end_s = 0;
    for (const int task : parts_[instruction]) end_s = std::max(end_s, EndS(task));
    return end_s;
  }

 private:
  const PlayedGraph& played_;
  std::vector<std::vector<int>> parts_;
  std::vector<int> join_;  // -1: none.
};

StepMemory::StepMemory(const TrainingGraph& graph)
    : read_bytes_(graph.instructions.size(), 0), forwards_(ForwardsOf(graph)) {
  std::unordered_map<std::string_view, size_t> places;  // Of tensors among the outputs.
  for (int i = 0; i < static_cast<int>(graph.instructions.size()); ++i) {
    const Instruction& one = graph.instructions[i];
    if (one.phase == Pass::kForward) forwards_[i] = i;
    has_sizes_ = has_sizes_ || !one.output_bytes.empty();
    for (size_t output = 0; output < one.output_bytes.size(); ++output) {
      if (one.output_bytes[output] <= 0) continue;
      places[one.outputs[output]] = outputs_.size();
      outputs_.push_back({.maker = i, .bytes = one.output_bytes[output], .is_kept = one.weight_gradient});
    }
  }
  for (int i = 0; i < static_cast<int>(graph.instructions.size()); ++i) {
    for (const std::string& tensor : graph.instructions[i].inputs) {
      const auto found = places.find(tensor);
      if (found == places.end()) continue;
      outputs_[found->second].readers.push_back(i);
      outputs_[found->second].is_kept = false;  // Who reads it takes it.
      read_bytes_[i] += outputs_[found->second].bytes;
    }
  }
}

std::optional<double> StepMemory::PeakBytes(std::span<const StepRange> ranges, const StepTasks& tasks,
                                            const PlayedGraph& played) const {
  if (!has_sizes_) return std::nullopt;
  std::vector<int> range_of(forwards_.size(), -1);  // By forward instruction.
  for (size_t range = 0; range < ranges.size(); ++range) {
    for (int i = ranges[range].first; i <= ranges[range].last; ++i) range_of[i] = static_cast<int>(range);
  }
  const auto range_at = [&](int i) { return forwards_[i] < 0 ? -1 : range_of[forwards_[i]]; };
  const Launches launches(tasks, played, forwards_.size());
  Ledger ledger;
  for (const Output& output : outputs_) {
    const std::vector<int>& parts = launches.Of(output.maker);
    const auto reads_whole = [&](int reader) {
      return forwards_[reader] == reader && range_at(reader) != range_at(output.maker);
    };
    const int join = std::ranges::any_of(output.readers, reads_whole) ? launches.JoinOf(output.maker) : -1;
    // A join without a time has both in memory, too.
    double joined_until_s = join < 0 ? 0 : std::nextafter(launches.EndS(join), std::numeric_limits<double>::infinity());
    std::vector<double> until_s;
    for (const int task : parts) {
      until_s.push_back(output.is_kept ? played.total_s : std::max(launches.EndS(task), joined_until_s));
    }
    for (const int reader : output.readers) {
      const std::vector<int>& reading = launches.Of(reader);
      const bool inside = range_at(reader) == range_at(output.maker);
      // Parts are put together for the forward pass; the backward pass reads them where they lie.
      if (join >= 0 && reads_whole(reader)) {
        joined_until_s = std::max(joined_until_s, launches.LastEndS(reader));
        continue;
      }
      const bool part_by_part = inside && reading.size() == parts.size();
      for (size_t part = 0; part < parts.size(); ++part) {
        until_s[part] =
            std::max(until_s[part], part_by_part ? launches.EndS(reading[part]) : launches.LastEndS(reader));
      }
    }
    for (size_t part = 0; part < parts.size(); ++part) {
      ledger.Add(output.bytes / static_cast<double>(parts.size()), launches.StartS(parts[part]), until_s[part]);
    }
    if (join >= 0) ledger.Add(output.bytes, launches.StartS(join), joined_until_s);
  }
  return ledger.Peak();
}

}  // namespace moeplan::planner
