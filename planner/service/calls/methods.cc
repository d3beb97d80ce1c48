#include <string>
#include <utility>
#include <vector>

#include "models/text.h"
#include "moeplan/v1/agent_service.pb.h"
#include "moeplan/v1/planner_service.pb.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/service/calls/method.h"
#include "planner/service/handlers/advise.h"
#include "planner/service/handlers/agents.h"
#include "planner/service/handlers/append_samples.h"
#include "planner/service/handlers/clusters.h"
#include "planner/service/handlers/curve.h"
#include "planner/service/handlers/explain_plan.h"
#include "planner/service/handlers/explain_rules.h"
#include "planner/service/handlers/fit_profile.h"
#include "planner/service/handlers/import_model.h"
#include "planner/service/handlers/links.h"
#include "planner/service/handlers/measured_steps.h"
#include "planner/service/handlers/plan.h"
#include "planner/service/handlers/profiles.h"
#include "planner/service/handlers/put_profile.h"
#include "planner/service/handlers/put_samples.h"
#include "planner/service/handlers/rank_layouts.h"
#include "planner/service/handlers/rejected_samples.h"
#include "planner/service/handlers/report_run.h"
#include "planner/service/handlers/runs.h"
#include "planner/service/handlers/samples.h"
#include "planner/service/handlers/step.h"
#include "planner/service/handlers/sweep.h"

namespace moeplan::service {
namespace {

template <typename Request, typename Response>
Method Unary(std::string_view path, Role role,
             StatusOr<Response> (*handler)(const Environment&, const Request&, std::stop_token)) {
  using Message = google::protobuf::Message;
  return {.path = StrCat("/moeplan.v1.", path),
          .role = role,
          .request = &Request::default_instance(),
          .response = &Response::default_instance(),
          .handle = [handler](const Environment& environment, const Message& request,
                              std::stop_token cancelled) -> StatusOr<std::unique_ptr<Message>> {
            ASSIGN_OR_RETURN(Response response,
                             handler(environment, static_cast<const Request&>(request), std::move(cancelled)));
            return std::unique_ptr<Message>(std::make_unique<Response>(std::move(response)));
          }};
}

Method PlanMethod() {
  Method method = Unary("PlannerService/Plan", Role::kPlan, &Plan);
  method.may_repeat = [](const google::protobuf::Message& answer) {
    const v1::Search::StopReason reason = static_cast<const v1::PlanResponse&>(answer).search().stop_reason();
    return reason != v1::Search::OUT_OF_TIME && reason != v1::Search::CANCELLED;
  };
  method.afterwards = [](const google::protobuf::Message& answer, Aftermath& aftermath) {
    aftermath.AnsweredPlan(static_cast<const v1::PlanResponse&>(answer));
  };
  return method;
}

Method ReportMethod() {
  Method method = Unary("PlannerService/ReportRun", Role::kReport, &ReportRun);
  method.afterwards = [](const google::protobuf::Message&, Aftermath& aftermath) { aftermath.TookReport(); };
  return method;
}

// A method that stores samples and answers how many.
template <typename Request, typename Response>
Method TakesSamples(std::string_view path,
                    StatusOr<Response> (*handler)(const Environment&, const Request&, std::stop_token)) {
  Method method = Unary(path, Role::kReport, handler);
  method.afterwards = [](const google::protobuf::Message& answer, Aftermath& aftermath) {
    const auto& response = static_cast<const Response&>(answer);
    aftermath.AcknowledgedSamples(response.stored_samples(), response.rejected_samples());
  };
  return method;
}

Method StoresProfiles(Method method) {
  method.stores_profiles = true;
  return method;
}

Method WaitsForDisk(Method method) {
  method.waits_for_disk = true;
  return method;
}

std::vector<Method> MakeMethods() {
  return {
      PlanMethod(),
      ReportMethod(),
      Unary("PlannerService/ListMeasuredSteps", Role::kRead, &ListMeasuredSteps),
      Unary("PlannerService/ListDrifts", Role::kRead, &ListDrifts),
      Unary("PlannerService/ExplainRules", Role::kPlan, &ExplainRules),
      Unary("PlannerService/ExplainPlan", Role::kPlan, &ExplainPlan),
      Unary("PlannerService/Sweep", Role::kPlan, &Sweep),
      Unary("PlannerService/RankLayouts", Role::kPlan, &RankLayouts),
      Unary("PlannerService/Step", Role::kPlan, &Step),
      Unary("PlannerService/Advise", Role::kPlan, &Advise),
      Unary("PlannerService/CompareDispatchers", Role::kPlan, &CompareDispatchers),
      Unary("PlannerService/ListNamed", Role::kRead, &ListNamed),
      Unary("PlannerService/ImportModel", Role::kPlan, &ImportModel),
      Unary("PlannerService/ListRuns", Role::kRead, &ListRuns),
      Unary("PlannerService/GetRun", Role::kRead, &GetRun),
      Unary("ProfileService/ListProfiles", Role::kRead, &ListProfiles),
      Unary("ProfileService/GetProfile", Role::kRead, &GetProfile),
      StoresProfiles(TakesSamples("ProfileService/PutSamples", &PutSamples)),
      StoresProfiles(Unary("ProfileService/PutProfile", Role::kAdmin, &PutProfile)),
      WaitsForDisk(TakesSamples("ProfileService/AppendSamples", &AppendSamples)),
      StoresProfiles(Unary("ProfileService/FitProfile", Role::kReport, &FitProfile)),
      Unary("ProfileService/ListRejectedSamples", Role::kRead, &ListRejectedSamples),
      Unary("ProfileService/ListClusters", Role::kRead, &ListClusters),
      Unary("ProfileService/GetLinks", Role::kRead, &GetLinks),
      Unary("ProfileService/GetCurve", Role::kRead, &GetCurve),
      Unary("ProfileService/ListSamples", Role::kRead, &ListSamples),
      Unary("AgentService/ListAgents", Role::kRead, &ListAgents),
      Unary("AgentService/StartCalibration", Role::kAdmin, &StartCalibration),
      Unary("AgentService/GetCalibration", Role::kRead, &GetCalibration),
      Unary("AgentService/ListCalibrations", Role::kRead, &ListCalibrations),
      Unary("AgentService/CancelCalibration", Role::kAdmin, &CancelCalibration),
  };
}

}  // namespace

std::span<const Method> Methods() {
  static const std::vector<Method> methods = MakeMethods();
  return methods;
}

const Method* FindMethod(std::string_view path) {
  for (const Method& method : Methods()) {
    if (method.path == path) return &method;
  }
  return nullptr;
}

}  // namespace moeplan::service
