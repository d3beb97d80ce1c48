#include "planner/lancet/way_back.h"

#include <algorithm>

namespace moeplan::planner {

WayBack::WayBack(const TimedGraph& graph) : graph_(graph), back_(graph.size()) {
  for (int i = 0; i < graph.size(); ++i) {
    const int forward = graph.instructions[i].forward;
    if (forward >= 0) back_[forward].push_back(i);
    empty_ = empty_ && forward < 0;
  }
  if (empty_) return;
  timeline_.emplace(graph);
  for (int stream = 0; stream < kStreamKinds; ++stream) {
    work_s_[stream].assign(graph.max_parts, std::vector<double>(graph.size() + 1, 0));
    for (int parts = 1; parts <= graph.max_parts; ++parts) {
      std::vector<double>& sum_s = work_s_[stream][parts - 1];
      for (int i = 0; i < graph.size(); ++i) {
        sum_s[i + 1] = sum_s[i];
        for (const int back : back_[i]) {
          const TimedInstruction& one = graph.instructions[back];
          if (static_cast<int>(one.stream) == stream) sum_s[i + 1] += one.part_s[parts - 1] * parts;
        }
      }
    }
  }
}

std::vector<int> WayBack::Of(int first, int last) const {
  std::vector<int> instructions;
  if (empty_) return instructions;
  for (int i = first; i <= last; ++i) instructions.insert(instructions.end(), back_[i].begin(), back_[i].end());
  std::ranges::sort(instructions);
  return instructions;
}

double WayBack::LeastAddedS(int first, int last, int parts) const {
  if (empty_) return 0;
  double longest_s = 0, whole_s = 0;
  for (int stream = 0; stream < kStreamKinds; ++stream) {
    longest_s = std::max(longest_s, WorkS(stream, first, last, parts));
    whole_s += WorkS(stream, first, last, 1);
  }
  return longest_s - whole_s;
}

std::optional<double> WayBack::AddedS(int first, int last, int parts) {
  const std::vector<int> instructions = Of(first, last);
  if (instructions.empty()) return 0;
  launches_ += instructions.back() - instructions.front() + 1;  // Looking through them costs about as much.
  if (!CanBeCut(instructions)) return std::nullopt;
  return PlayedS(instructions, parts) - PlayedS(instructions, 1);
}

bool WayBack::CanBeCut(const std::vector<int>& instructions) const {
  const int first = instructions.front();
  std::vector<bool> inside(instructions.back() - first + 1, false), behind(inside.size(), false);
  for (const int i : instructions) inside[i - first] = true;
  for (int i = first; i <= instructions.back(); ++i) {
    for (const int producer : graph_.instructions[i].producers) {
      if (producer < first) continue;
      if (inside[i - first] && behind[producer - first]) return false;
      if (inside[producer - first] || behind[producer - first]) behind[i - first] = !inside[i - first];
    }
  }
  return true;
}

double WayBack::PlayedS(const std::vector<int>& instructions, int parts) {
  order_.clear();
  AppendParts(graph_, instructions, parts, order_);
  for (const PartLaunch& launch : order_) timeline_->Run(launch);
  launches_ += static_cast<double>(order_.size());
  const double end_s = timeline_->streams().end_s();
  timeline_->Forget(instructions);
  return end_s;
}

double WayBack::WorkS(int stream, int first, int last, int parts) const {
  const std::vector<double>& sum_s = work_s_[stream][parts - 1];
  return sum_s[last + 1] - sum_s[first];
}

}  // namespace moeplan::planner
