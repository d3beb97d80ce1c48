#include "planner/service/handlers/agents.h"

#include "models/text.h"
#include "planner/service/fleet/agent_hub.h"
#include "planner/service/fleet/calibration_request.h"
#include "planner/service/fleet/calibrations.h"
#include "planner/service/fleet/errors.h"
#include "proto/errors.h"

namespace moeplan::service {

StatusOr<v1::ListAgentsResponse> ListAgents(const Environment& environment, const v1::ListAgentsRequest& request,
                                            std::stop_token /*cancelled*/) {
  if (environment.agents == nullptr) return error::NoDriver();
  return environment.agents->List(request);
}

StatusOr<v1::StartCalibrationResponse> StartCalibration(const Environment& environment,
                                                        const v1::StartCalibrationRequest& request,
                                                        std::stop_token /*cancelled*/) {
  if (environment.calibrations == nullptr) return error::NoDriver();
  if (request.request_id().starts_with(kRemeasurePrefix)) {
    return moeplan::error::Mismatch("requestId", request.request_id(),
                                    StrCat("one that does not begin with '", kRemeasurePrefix, "'"));
  }
  v1::StartCalibrationResponse response;
  ASSIGN_OR_RETURN(const std::int64_t calibration, environment.calibrations->Start(request));
  response.set_calibration(static_cast<int>(calibration));
  return response;
}

StatusOr<v1::GetCalibrationResponse> GetCalibration(const Environment& environment,
                                                    const v1::GetCalibrationRequest& request,
                                                    std::stop_token /*cancelled*/) {
  if (environment.calibrations == nullptr) return error::NoDriver();
  v1::GetCalibrationResponse response;
  ASSIGN_OR_RETURN(*response.mutable_status(), environment.calibrations->Get(request.calibration()));
  return response;
}

StatusOr<v1::ListCalibrationsResponse> ListCalibrations(const Environment& environment,
                                                        const v1::ListCalibrationsRequest& request,
                                                        std::stop_token /*cancelled*/) {
  if (environment.calibrations == nullptr) return error::NoDriver();
  return environment.calibrations->List(request);
}

StatusOr<v1::CancelCalibrationResponse> CancelCalibration(const Environment& environment,
                                                          const v1::CancelCalibrationRequest& request,
                                                          std::stop_token /*cancelled*/) {
  if (environment.calibrations == nullptr) return error::NoDriver();
  v1::CancelCalibrationResponse response;
  ASSIGN_OR_RETURN(*response.mutable_status(), environment.calibrations->Cancel(request.calibration()));
  return response;
}

}  // namespace moeplan::service
