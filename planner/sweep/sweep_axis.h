// One swept field: "PATH=V1,V2,...".
//
// A path (scalar_path.h) leads to a scalar of the workload ("layer.sequenceLength", "maxChunks"), or of the profile:
// of its cluster ("cluster.nodes") or its cost models ("kernels[EXPERT_GEMM].efficiency.peakFlopsPerS"). Beside what
// files say, "cluster.nic.scale" is ScaleNic, and ".timeScale" of a cost model ScaleTime.
#pragma once

#include <string>
#include <vector>

#include "models/cost/profile.h"
#include "models/status.h"
#include "moeplan/v1/profile.pb.h"
#include "moeplan/v1/workload.pb.h"
#include "planner/sweep/scalar_path.h"

namespace moeplan::planner {

class SweepAxis {
 public:
  // kInvalidInput naming the path, what was found and what there is: an unknown path, one that is not a scalar, a value
  // of another type, none, more than kMaxValues, a scale that is not within a billion of 1, a name without entries in
  // the profile. `what` begins the error.
  static StatusOr<SweepAxis> Parse(const std::string& text, const v1::Workload& workload, const v1::Profile& profile,
                                   const std::string& what = "--sweep");

  static constexpr size_t kMaxValues = 1'000'000;

  // What it changes.
  enum class Target { kWorkload, kCluster, kCostModel, kTimeScale, kNicScale };
  Target target() const { return target_; }
  bool scales() const { return target_ >= Target::kTimeScale; }

  const std::string& path() const { return path_; }
  const std::vector<SweepValue>& values() const { return values_; }

  // Whether both set the same field.
  bool Meets(const SweepAxis& other) const {
    return target_ == other.target_ && !scales() && where_.front().Meets(other.where_.front());
  }
  // "collectives[ALL_TO_ALL].logLog...: collectives[4] has no such field and stays"; mostly empty.
  std::string Note() const;

  // Sets the value at `index` where the axis points, which is no scale.
  void Set(size_t index, v1::Workload& workload) const { where_.front().Set(workload, values_[index]); }
  void Set(size_t index, v1::Profile& profile) const { where_.front().Set(profile, values_[index]); }
  // Scales by the value at `index`. The profile has the cost models of that of Parse, in the same order.
  void Scale(size_t index, Profile& profile) const;

 private:
  Status ParsePath(const v1::Workload& workload, const v1::Profile& profile);
  std::string OtherWays() const;
  StatusOr<SweepValue> ParseValue(const std::string& text) const;

  std::string path_;
  Target target_ = Target::kWorkload;
  std::vector<ScalarPath> where_;  // One, but of scales none.
  bool kernels_ = false;           // Of kTimeScale: which list, and
  std::vector<int> entries_;       // which of its entries.
  std::vector<SweepValue> values_;
};

}  // namespace moeplan::planner
