// How a server of this program calibrates: a Fleet over the ranks that its agents hold. A library of its own, for who
// serves without the command line.
#pragma once

#include <functional>
#include <string>

#include "planner/service/fleet/calibration_driver.h"

namespace moeplan::cli {

// `now_text`: the moment as RFC 3339, for the provenance of samples.
service::CalibrationDriver MakeCalibrationDriver(std::function<std::string()> now_text);

}  // namespace moeplan::cli
