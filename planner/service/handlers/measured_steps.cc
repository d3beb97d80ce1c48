#include "planner/service/handlers/measured_steps.h"

namespace moeplan::service {

StatusOr<v1::ListMeasuredStepsResponse> ListMeasuredSteps(const Environment& environment,
                                                          const v1::ListMeasuredStepsRequest&, std::stop_token) {
  v1::ListMeasuredStepsResponse response;
  if (environment.measured_steps != nullptr) *response.mutable_reproduced() = *environment.measured_steps;
  return response;
}

}  // namespace moeplan::service
