// One swept field: "PATH=V1,V2,...".
//
// A path is a scalar of the workload by its JSON names ("layer.sequenceLength", "maxChunks"), one of the cluster
// ("cluster.nodes"), or a scale of what was measured: "cluster.nic.scale" (ScaleNic), "collectives[NAME].timeScale" and
// "kernels[NAME].timeScale" (ScaleTime of all entries of that name).
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <variant>
#include <vector>

#include "models/cost/profile.h"
#include "models/status.h"
#include "moeplan/v1/cluster.pb.h"
#include "moeplan/v1/workload.pb.h"

namespace moeplan {

// A number, a truth value, or a text: the name of an enum value too.
using SweepValue = std::variant<double, bool, std::string>;

std::string TextOf(const SweepValue& value);

class SweepAxis {
 public:
  // kInvalidInput naming the path, what was found and what there is: an unknown path, one that is not a scalar, a value
  // of another type, none, more than kMaxValues, a scale that is not within a billion of 1, a name without entries in
  // the profile.
  static StatusOr<SweepAxis> Parse(const std::string& text, const Profile& profile);

  static constexpr size_t kMaxValues = 1'000'000;

  const std::string& path() const { return path_; }
  const std::vector<SweepValue>& values() const { return values_; }

  // Sets the value at `index` where the axis points; what it does not point to stays.
  void Apply(size_t index, v1::Workload& workload, v1::Cluster& cluster) const;
  void Apply(size_t index, Profile& profile) const;
  // Whether it changes cost models.
  bool scales() const { return target_ > Target::kCluster; }

 private:
  enum class Target { kWorkload, kCluster, kNic, kCollective, kKernel };

  Status ParsePath(const Profile& profile);
  Status ParseField(std::string_view path, const google::protobuf::Descriptor& root);
  Status ParseScaledName(std::string_view name, const Profile& profile);
  StatusOr<SweepValue> ParseValue(const std::string& text) const;
  StatusOr<SweepValue> ParseFieldValue(const std::string& text) const;

  std::string path_;
  Target target_ = Target::kWorkload;
  std::vector<const google::protobuf::FieldDescriptor*> fields_;  // From the workload or cluster down to the scalar.
  Collective collective_ = Collective::kAllToAll;
  Kernel kernel_ = Kernel::kExpertGemm;
  std::vector<SweepValue> values_;
};

}  // namespace moeplan
