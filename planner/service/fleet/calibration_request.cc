#include "planner/service/fleet/calibration_request.h"

#include "models/model/hf_config.h"
#include "planner/service/fleet/agent_registry.h"
#include "planner/service/fleet/errors.h"
#include "proto/convert/samples.h"
#include "proto/convert/struct_text.h"
#include "proto/convert/workload.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

constexpr double kLongestS = 7 * 86400;
constexpr size_t kLongestProfileName = 128;

Status CheckTime(std::string_view field, double found) {
  return found > 0 && found <= kLongestS ? OkStatus() : error::OutOfRange(field, found, 0, kLongestS);
}

}  // namespace

v1::StartCalibrationRequest WithDefaults(const v1::StartCalibrationRequest& given) {
  v1::StartCalibrationRequest request = given;
  if (request.cluster().empty()) request.set_cluster("default");
  if (request.profile_name().empty()) request.set_profile_name(request.cluster());
  if (!request.has_budget_s()) request.set_budget_s(60);
  if (!request.has_wait_limit_s()) request.set_wait_limit_s(3600);
  return request;
}

Status ValidateCalibrationRequest(const v1::StartCalibrationRequest& request) {
  if (!IsFleetName(request.cluster())) return error::BadName("cluster", request.cluster());
  if (request.profile_name().size() > kLongestProfileName) {
    return error::OutOfRange("bytes of profileName", static_cast<double>(request.profile_name().size()), 1,
                             kLongestProfileName);
  }
  RETURN_IF_ERROR(CheckTime("budgetS", request.budget_s()));
  RETURN_IF_ERROR(CheckTime("waitLimitS", request.wait_limit_s()));
  return WorkOfRequest(request).status();
}

StatusOr<CalibrationWork> WorkOfRequest(const v1::StartCalibrationRequest& request) {
  CalibrationWork work = {.name = request.profile_name()};
  if (request.has_grid()) {
    StatusOr<std::vector<Workload>> grid = WorkloadsFromProto(request.grid());
    if (!grid.ok()) return grid.status().Within("grid");
    work.grid = *std::move(grid);
  }
  if (request.operations_size() > kMostOperations) {
    return error::OutOfRange("operations", request.operations_size(), 0, kMostOperations);
  }
  if (request.models_size() > kMostModels) return error::OutOfRange("models", request.models_size(), 0, kMostModels);
  if (request.models_size() > 0 && (request.has_grid() || request.operations_size() > 0)) {
    return moeplan::error::Mismatch("models", "them beside grid or operations", "one of the three");
  }
  for (int i = 0; i < request.models_size(); ++i) {
    ASSIGN_OR_RETURN(ModelConfig model, ModelFromHfConfig(JsonTextOf(request.models(i)), ItemPath("models", i)));
    work.models.push_back(std::move(model));
  }
  for (int i = 0; i < request.operations_size(); ++i) {
    ASSIGN_OR_RETURN(Sample operation, SampleFromProto(request.operations(i), ItemPath("operations", i)));
    operation.times_s.clear();
    work.operations.push_back(std::move(operation));
  }
  return work;
}

}  // namespace moeplan::service
