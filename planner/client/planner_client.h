// What a job, an agent or the command line links to ask a planner over gRPC.
//
// Every call has a deadline and no call is repeated; all of them are safe to repeat (puts: with the same request_id).
// Errors: those of the planner keep their code and message (proto/grpc_status.h). kUnavailable: no planner answers
// there, or it has too much to do. kDeadlineExceeded: no answer within the deadline.
//
// Threads: any thread may call any method at the same time. Nothing is shared between clients. The connection ignores
// HTTP proxies and comes back by itself when a planner is restarted. Must not be carried across
// fork().
#pragma once

#include <memory>
#include <string>

#include "models/status.h"
#include "moeplan/v1/agent_service.pb.h"
#include "moeplan/v1/planner_service.pb.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/client/connect_options.h"

namespace moeplan::client {

class PlannerClient {
 public:
  // Connects. A refused connection is kUnavailable at once.
  static StatusOr<std::unique_ptr<PlannerClient>> Connect(const ConnectOptions& options);

  ~PlannerClient();
  PlannerClient(const PlannerClient&) = delete;
  PlannerClient& operator=(const PlannerClient&) = delete;

  StatusOr<v1::PlanResponse> Plan(const v1::PlanRequest& request) const;
  // With another deadline than the others.
  StatusOr<v1::PlanResponse> Plan(const v1::PlanRequest& request, double deadline_s) const;

  StatusOr<v1::ReportRunResponse> ReportRun(const v1::ReportRunRequest& request) const;
  StatusOr<v1::ListDriftsResponse> ListDrifts(const v1::ListDriftsRequest& request) const;

  StatusOr<v1::ListProfilesResponse> ListProfiles(const v1::ListProfilesRequest& request) const;
  StatusOr<v1::GetProfileResponse> GetProfile(const v1::GetProfileRequest& request) const;
  StatusOr<v1::PutSamplesResponse> PutSamples(const v1::PutSamplesRequest& request) const;
  StatusOr<v1::PutProfileResponse> PutProfile(const v1::PutProfileRequest& request) const;
  StatusOr<v1::AppendSamplesResponse> AppendSamples(const v1::AppendSamplesRequest& request) const;
  StatusOr<v1::FitProfileResponse> FitProfile(const v1::FitProfileRequest& request) const;
  StatusOr<v1::ListRejectedSamplesResponse> ListRejectedSamples(const v1::ListRejectedSamplesRequest& request) const;

  StatusOr<v1::ListAgentsResponse> ListAgents(const v1::ListAgentsRequest& request) const;
  StatusOr<v1::StartCalibrationResponse> StartCalibration(const v1::StartCalibrationRequest& request) const;
  StatusOr<v1::GetCalibrationResponse> GetCalibration(const v1::GetCalibrationRequest& request) const;
  StatusOr<v1::ListCalibrationsResponse> ListCalibrations(const v1::ListCalibrationsRequest& request) const;
  StatusOr<v1::CancelCalibrationResponse> CancelCalibration(const v1::CancelCalibrationRequest& request) const;

 private:
  class Impl;
  explicit PlannerClient(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace moeplan::client
