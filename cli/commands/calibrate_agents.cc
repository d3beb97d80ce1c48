#include "cli/commands/calibrate_agents.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "cli/named_model.h"
#include "cli/options.h"
#include "models/text.h"
#include "planner/client/planner_client.h"
#include "proto/convert/profile.h"
#include "proto/convert/workload.h"
#include "proto/json.h"

namespace moeplan::cli {
namespace {

constexpr std::chrono::milliseconds kAskEvery{250};

StatusOr<v1::StartCalibrationRequest> RequestOf(const AgentCalibration& wanted) {
  v1::StartCalibrationRequest request;
  request.set_request_id(StrCat("calibrate ", wanted.cluster, " ", NowText(), " ", static_cast<int>(getpid())));
  request.set_cluster(wanted.cluster);
  request.set_profile_name(wanted.profile_name);
  request.set_budget_s(wanted.budget_s);
  request.set_wait_limit_s(wanted.wait_limit_s);
  if (!wanted.layouts.empty()) {
    ASSIGN_OR_RETURN(const std::vector<Workload> grid, ReadGrid(wanted.layouts));
    *request.mutable_grid() = ToProto(grid);
  }
  for (const std::string& name : wanted.models) {
    ASSIGN_OR_RETURN(const std::string text, ModelTextOf(name, "--for"));
    // Foreign JSON is read as a field of ours.
    ASSIGN_OR_RETURN(const auto one, FromJson<v1::StartCalibrationRequest>(StrCat("{\"models\": [", text, "]}"), name));
    request.MergeFrom(one);
  }
  return request;
}

bool HasEnded(const v1::CalibrationStatus& status) {
  return status.state() != v1::CalibrationStatus::WAITING && status.state() != v1::CalibrationStatus::RUNNING;
}

// A planner that ends cancels the calls that it does not answer in time.
bool MayGoOn(StatusCode code) { return code == StatusCode::kUnavailable || code == StatusCode::kCancelled; }

// Asks until it has ended. The planner may be restarted meanwhile: the calibration goes on by itself, and so does this.
StatusOr<v1::CalibrationStatus> AwaitEnd(const client::PlannerClient& client, int calibration, double patience_s) {
  ProgressBar bar("calibrating");
  v1::GetCalibrationRequest request;
  request.set_calibration(calibration);
  auto heard = std::chrono::steady_clock::now();
  for (;;) {
    const StatusOr<v1::GetCalibrationResponse> answer = client.GetCalibration(request);
    const auto now = std::chrono::steady_clock::now();
    if (answer.ok()) {
      heard = now;
      if (HasEnded(answer->status())) return answer->status();
      bar.Show(answer->status().done(), answer->status().detail());
    } else if (!MayGoOn(answer.status().code()) || now - heard > std::chrono::duration<double>(patience_s)) {
      return answer.status().Within(StrCat("calibration ", calibration));
    }
    std::this_thread::sleep_for(kAskEvery);
  }
}

}  // namespace

StatusOr<Profile> CalibrateWithAgents(const AgentCalibration& wanted) {
  constexpr double kPatienceS = 120;
  ASSIGN_OR_RETURN(const v1::StartCalibrationRequest request, RequestOf(wanted));
  ASSIGN_OR_RETURN(const auto client, client::PlannerClient::Connect(wanted.planner));
  ASSIGN_OR_RETURN(const v1::StartCalibrationResponse started, client->StartCalibration(request));
  std::fprintf(stderr, "moeplan: calibration %d of cluster %s; it goes on without this command\n",
               started.calibration(), wanted.cluster.c_str());
  ASSIGN_OR_RETURN(const v1::CalibrationStatus ended, AwaitEnd(*client, started.calibration(), kPatienceS));
  if (ended.state() != v1::CalibrationStatus::DONE) {
    return Unavailable(StrCat("calibration ", started.calibration(), " has not gone well: ", ended.detail()));
  }
  v1::GetProfileRequest wanted_profile;
  wanted_profile.set_profile_name(ended.profile_name());
  wanted_profile.set_profile_version(ended.profile_version());
  ASSIGN_OR_RETURN(const v1::GetProfileResponse profile, client->GetProfile(wanted_profile));
  return ProfileFromProto(profile.profile());
}

}  // namespace moeplan::cli
