// What the capture of a CUDA graph has to keep in mind: which streams have joined it, and of each event whether it was
// recorded inside. Pure bookkeeping; one thread.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace moeplan::executor::cuda {

template <typename Stream, typename Event>
class CaptureScope {
 public:
  // Whether the stream is new here: then it has to wait for the origin first.
  bool Join(Stream* stream) { return AddTo(streams_, stream); }
  void Record(Event* event) { AddTo(events_, event); }

  // Else a wait for it is one for what was recorded outside, before each replay.
  bool RecordedInside(const Event* event) const { return std::ranges::find(events_, event) != events_.end(); }

  const std::vector<Stream*>& streams() const { return streams_; }
  const std::vector<Event*>& events() const { return events_; }

  // Why this can be no graph: the first reason given; empty while there is none.
  void Refuse(const std::string& why) {
    if (refusal_.empty()) refusal_ = why;
  }
  const std::string& refusal() const { return refusal_; }
  // The same, for a reason that other ranks have, too.
  void RefuseOnAllRanks(const std::string& why) {
    Refuse(why);
    refused_on_all_ranks_ = true;
  }
  bool refused_on_all_ranks() const { return refused_on_all_ranks_; }

  // Goes with the graph.
  void Keep(std::shared_ptr<void> handle) { kept_.push_back(std::move(handle)); }
  void Release() { kept_.clear(); }

 private:
  template <typename T>
  static bool AddTo(std::vector<T*>& list, T* one) {
    if (std::ranges::find(list, one) != list.end()) return false;
    list.push_back(one);
    return true;
  }

  std::vector<Stream*> streams_;
  std::vector<Event*> events_;
  std::string refusal_;
  bool refused_on_all_ranks_ = false;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace moeplan::executor::cuda
