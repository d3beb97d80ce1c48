// What a fit says of samples that were asked about before: who looks at one cost after the other, at more samples of
// it, or at two versions has a curve's samples screened once.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "db/store.h"

namespace moeplan::service {

class OutlierMemory {
 public:
  // By place in `times`: which repeats of a sample that counts are outliers, rising (models/fit/screen.h).
  using Outliers = std::vector<std::vector<int>>;

  // Any thread.
  std::shared_ptr<const Outliers> Of(const KeySamples& samples);

 private:
  // Holds the times that `outliers` is of, so that no other times are taken for them.
  struct Known {
    std::vector<KeySamples::Part> parts;
    std::shared_ptr<const Outliers> outliers;
    size_t bytes = 0;
  };

  std::shared_ptr<const Outliers> Find(const std::vector<KeySamples::Part>& parts);

  std::mutex mutex_;
  std::list<Known> last_;  // Last used first. Guarded by mutex_, as is the next.
  size_t bytes_ = 0;       // Of all of them.
};

}  // namespace moeplan::service
