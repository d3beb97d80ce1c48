#include "executor/cuda/stream_priority.h"

#include <algorithm>

namespace moeplan::executor::cuda {

int PriorityOf(Traffic traffic, const PriorityRange& range) {
  const int before_compute = std::max(range.greatest, range.least - 1);
  return std::min(range.greatest + static_cast<int>(traffic), before_compute);
}

int PriorityOf(StreamPriority priority, const PriorityRange& range) {
  switch (priority) {
    case StreamPriority::kNormal: return range.least;
    case StreamPriority::kHigh: return PriorityOf(Traffic::kExpert, range);
    case StreamPriority::kData: return PriorityOf(Traffic::kData, range);
  }
  return range.least;
}

}  // namespace moeplan::executor::cuda
