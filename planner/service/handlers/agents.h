// AgentService, but for the connections of agents (fleet/agent_stream.h).
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/agent_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// All of them: kUnimplemented where the environment has no fleet.

StatusOr<v1::ListAgentsResponse> ListAgents(const Environment& environment, const v1::ListAgentsRequest& request,
                                            std::stop_token cancelled);

StatusOr<v1::StartCalibrationResponse> StartCalibration(const Environment& environment,
                                                        const v1::StartCalibrationRequest& request,
                                                        std::stop_token cancelled);

StatusOr<v1::GetCalibrationResponse> GetCalibration(const Environment& environment,
                                                    const v1::GetCalibrationRequest& request,
                                                    std::stop_token cancelled);

StatusOr<v1::ListCalibrationsResponse> ListCalibrations(const Environment& environment,
                                                        const v1::ListCalibrationsRequest& request,
                                                        std::stop_token cancelled);

StatusOr<v1::CancelCalibrationResponse> CancelCalibration(const Environment& environment,
                                                          const v1::CancelCalibrationRequest& request,
                                                          std::stop_token cancelled);

}  // namespace moeplan::service
