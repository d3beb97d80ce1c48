#include "executor/cuda/stream_priority.h"

#include <algorithm>

namespace moeplan::cuda {

Traffic TrafficOf(Group group) { return group == Group::kDenseReplicas ? Traffic::kData : Traffic::kExpert; }

int PriorityOf(Traffic traffic, const PriorityRange& range) {
  const int before_compute = std::max(range.greatest, range.least - 1);
  return std::min(range.greatest + static_cast<int>(traffic), before_compute);
}

int PriorityOf(StreamPriority priority, const PriorityRange& range) {
  return priority == StreamPriority::kNormal ? range.least : PriorityOf(Traffic::kExpert, range);
}

}  // namespace moeplan::cuda
