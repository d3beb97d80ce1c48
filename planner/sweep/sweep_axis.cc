#include "planner/sweep/sweep_axis.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <string_view>

#include "models/text.h"
#include "planner/sweep/cost_scaling.h"
#include "proto/errors.h"

namespace moeplan {
namespace {

constexpr std::string_view kNicScale = "cluster.nic.scale";
constexpr std::string_view kTimeScale = "].timeScale";

bool IsOneOf(std::string_view first_name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, first_name) != names.end();
}

}  // namespace

StatusOr<SweepAxis> SweepAxis::Parse(const std::string& text, const v1::Workload& workload,
                                     const v1::Profile& profile) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return InvalidInput(StrCat("--sweep: found '", text, "', expected PATH=VALUE,VALUE,..."));
  }
  SweepAxis axis;
  axis.path_ = text.substr(0, equals);
  RETURN_IF_ERROR(axis.ParsePath(workload, profile).Within("--sweep"));
  for (size_t begin = equals + 1; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    StatusOr<SweepValue> value = axis.ParseValue(text.substr(begin, end - begin));
    if (!value.ok()) return value.status().Within("--sweep");
    if (axis.values_.size() == kMaxValues) {
      return InvalidInput(
          StrCat("--sweep: ", axis.path_, ": found more than ", kMaxValues, " values, expected at most as many"));
    }
    axis.values_.push_back(*std::move(value));
    begin = end + 1;
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
  if (!where.ok()) {
    const bool known = of_profile || workload.GetDescriptor()->FindFieldByCamelcaseName(first_name) != nullptr;
    const std::string_view more = !known                        ? ", or cluster, collectives[NAME], kernels[NAME], "
                                  : target_ == Target::kCluster ? ", or "
                                                                : "";
    if (target_ == Target::kCostModel) {
      return InvalidInput(StrCat(where.status().message(), ", or ", first_name, "[NAME].timeScale"));
    }
    return more.empty() ? where.status() : InvalidInput(StrCat(where.status().message(), more, kNicScale));
  }
  where_.push_back(*std::move(where));
  return OkStatus();
}

StatusOr<SweepValue> SweepAxis::ParseValue(const std::string& text) const {
  if (text.empty()) return error::Mismatch(path_, "an empty value", "values between single commas");
  if (!scales()) return where_.front().ParseValue(text);
  constexpr double kMost = 1e9;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (is_number && number >= 1 / kMost && number <= kMost) return SweepValue(number);
  return error::Mismatch(path_, text, "a number from 1e-9 to 1e9");
}

void SweepAxis::Scale(size_t index, Profile& profile) const {
  const double factor = std::get<double>(values_[index]);
  if (target_ == Target::kNicScale) return ScaleNic(profile, factor);
  for (const int entry : entries_) {
    ScaleTime(kernels_ ? profile.kernels[entry].model : profile.collectives[entry].model, factor);
  }
}

}  // namespace moeplan
