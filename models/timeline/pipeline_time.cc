#include "models/timeline/pipeline_time.h"

#include <algorithm>
#include <numeric>

#include "models/check.h"

namespace moeplan {

double PipelineTime(std::span<const double> stage_s, int chunks) {
  MOEPLAN_CHECK(!stage_s.empty() && chunks >= 1);
  const double first_chunk_s = std::accumulate(stage_s.begin(), stage_s.end(), 0.0);
  return first_chunk_s + (chunks - 1) * *std::max_element(stage_s.begin(), stage_s.end());
}

}  // namespace moeplan
