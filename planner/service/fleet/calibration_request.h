// What is asked for with StartCalibration. Pure.
#pragma once

#include <string_view>

#include "models/status.h"
#include "moeplan/v1/agent_service.pb.h"
#include "planner/service/fleet/calibration_driver.h"

namespace moeplan::service {

inline constexpr int kMostOperations = 10000, kMostModels = 16;  // Of one request.
// Begins the request ids of calibrations that the planner itself asks for, to measure again what drifted.
inline constexpr std::string_view kRemeasurePrefix = "remeasure version ";

// With every default written out.
v1::StartCalibrationRequest WithDefaults(const v1::StartCalibrationRequest& request);

// Requires the defaults. kInvalidInput names the field.
Status ValidateCalibrationRequest(const v1::StartCalibrationRequest& request);

// Name, grid, models and operations; the rest is left alone. Errors as above.
StatusOr<CalibrationWork> WorkOfRequest(const v1::StartCalibrationRequest& request);

}  // namespace moeplan::service
