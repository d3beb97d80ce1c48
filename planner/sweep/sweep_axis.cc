#include "planner/sweep/sweep_axis.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "models/text.h"
#include "planner/sweep/cost_scaling.h"
#include "planner/sweep/texts.h"
#include "proto/errors.h"

namespace moeplan::planner {
namespace {

constexpr std::string_view kNicScale = "cluster.nic.scale";
constexpr std::string_view kTimeScale = "].timeScale";

bool IsOneOf(std::string_view first_name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, first_name) != names.end();
}

}  // namespace

StatusOr<SweepAxis> SweepAxis::Parse(const std::string& text, const v1::Workload& workload, const v1::Profile& profile,
                                     const std::string& what) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return InvalidInput(StrCat(what, ": found '", text, "', expected PATH=VALUE,VALUE,..."));
  }
  SweepAxis axis;
  axis.path_ = text.substr(0, equals);
  RETURN_IF_ERROR(axis.ParsePath(workload, profile).Within(what));
  const std::vector<std::string> values = SplitAt(std::string_view(text).substr(equals + 1), ',');
  if (values.size() > kMaxValues) {
    return InvalidInput(
        StrCat(what, ": ", axis.path_, ": found ", values.size(), " values, expected at most ", kMaxValues));
  }
  for (const std::string& one : values) {
    StatusOr<SweepValue> value = axis.ParseValue(one);
    if (!value.ok()) return value.status().Within(what);
    axis.values_.push_back(*std::move(value));
  }
  return axis;
}

Status SweepAxis::ParsePath(const v1::Workload& workload, const v1::Profile& profile) {
  if (path_ == kNicScale) {
    target_ = Target::kNicScale;
    return OkStatus();
  }
  const std::string first_name = path_.substr(0, path_.find_first_of("[."));
  const size_t open = path_.find('[');
  if (IsOneOf(first_name, {"collectives", "kernels"}) && open == first_name.size() && path_.ends_with(kTimeScale)) {
    target_ = Target::kTimeScale;
    kernels_ = first_name == "kernels";
    const auto& list = *v1::Profile::descriptor()->FindFieldByName(first_name);
    const std::string selector = path_.substr(open + 1, path_.size() - kTimeScale.size() - open - 1);
    ASSIGN_OR_RETURN(entries_, NamedEntries(path_, list, selector, profile));
    return OkStatus();
  }
  const bool of_profile = IsOneOf(first_name, {"cluster", "collectives", "kernels"});
  if (of_profile) target_ = first_name == "cluster" ? Target::kCluster : Target::kCostModel;
  StatusOr<ScalarPath> where = of_profile ? ScalarPath::Parse(path_, profile) : ScalarPath::Parse(path_, workload);
  if (!where.ok()) return InvalidInput(StrCat(where.status().message(), OtherWays()));
  where_.push_back(*std::move(where));
  return OkStatus();
}

// What there is beside the fields of files, where an unknown one was named.
std::string SweepAxis::OtherWays() const {
  const auto knows = [](const google::protobuf::Descriptor& type, std::string_view name) {
    return type.FindFieldByCamelcaseName(std::string(name.substr(0, name.find_first_of("[.")))) != nullptr;
  };
  const size_t dot = path_.find('.');
  const std::string second = dot == std::string::npos ? "" : path_.substr(dot + 1);
  switch (target_) {
    case Target::kWorkload:
      if (knows(*v1::Workload::descriptor(), path_)) return "";
      return StrCat(", or cluster, collectives[NAME], kernels[NAME], ", kNicScale);
    case Target::kCluster: return knows(*v1::Cluster::descriptor(), second) ? "" : StrCat(", or ", kNicScale);
    default: break;
  }
  const bool known = knows(*v1::CollectiveModel::descriptor(), second) || knows(*v1::KernelModel::descriptor(), second);
  return known ? "" : StrCat(", or ", path_.substr(0, path_.find_first_of("[.")), "[NAME].timeScale");
}

StatusOr<SweepValue> SweepAxis::ParseValue(const std::string& text) const {
  if (text.empty()) return error::Mismatch(path_, "an empty value", "values between single commas");
  if (!scales()) return where_.front().ParseValue(text);
  constexpr double kMost = 1e9;
  const auto number = NumberOf<double>(text);
  if (number && *number >= 1 / kMost && *number <= kMost) return SweepValue(*number);
  return error::Mismatch(path_, text, "a number from 1e-9 to 1e9");
}

std::string SweepAxis::Note() const {
  if (where_.empty() || where_.front().left_out().empty()) return "";
  const std::vector<std::string>& left = where_.front().left_out();
  return StrCat(path_, ": ", CommaList(left),
                left.size() == 1 ? " does not plan by it and stays" : " do not plan by it and stay");
}

void SweepAxis::Scale(size_t index, Profile& profile) const {
  const double factor = std::get<double>(values_[index]);
  if (target_ == Target::kNicScale) return ScaleNic(profile, factor);
  for (const int entry : entries_) {
    ScaleTime(kernels_ ? profile.kernels[entry].model : profile.collectives[entry].model, factor);
  }
}

}  // namespace moeplan::planner
