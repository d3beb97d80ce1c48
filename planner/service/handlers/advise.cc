#include "planner/service/handlers/advise.h"

#include <string>
#include <utility>

#include "planner/messages/advise.h"
#include "planner/messages/dispatchers.h"
#include "planner/service/handlers/job_question.h"
#include "planner/service/polite_threads.h"
#include "planner/shipped/files.h"
#include "planner/shipped/names.h"

namespace moeplan::service {

StatusOr<v1::AdviseResponse> Advise(const Environment& environment, const v1::AdviseRequest& request,
                                    std::stop_token cancelled) {
  ASSIGN_OR_RETURN(const ModelConfig model, ModelOf(request));
  return planner::AnswerAdvise(
      request, model,
      [&](const ModelConfig& asked, int gpus) { return ProfileFor(environment.store, request, asked, gpus); },
      PoliteThreads(), std::move(cancelled));
}

StatusOr<v1::CompareDispatchersResponse> CompareDispatchers(const Environment& environment,
                                                            const v1::CompareDispatchersRequest& request,
                                                            std::stop_token cancelled) {
  ASSIGN_OR_RETURN(const ModelConfig model, ModelOf(request));
  return planner::AnswerCompareDispatchers(
      request, model,
      [&](const ModelConfig& asked, int gpus) { return ProfileFor(environment.store, request, asked, gpus); },
      {.cancelled = std::move(cancelled), .out_of_time = {}});
}

StatusOr<v1::ListNamedResponse> ListNamed(const Environment&, const v1::ListNamedRequest&, std::stop_token) {
  v1::ListNamedResponse response;
  for (std::string& name : planner::ShippedNames("models")) response.add_models(std::move(name));
  for (const std::string& name : planner::ShippedNames("hardware")) {
    ASSIGN_OR_RETURN(const Hardware hardware, planner::HardwareOf(name));
    v1::NamedHardware& one = *response.add_hardware();
    one.set_name(name);
    one.set_gpus_per_domain(hardware.gpus_per_domain);
    one.set_device_memory_bytes(hardware.memory_bytes.value);
  }
  for (const std::string& name : planner::TargetNames()) {
    ASSIGN_OR_RETURN(const planner::Target target, planner::TargetOf(name, ""));
    if (target.form == planner::SettingsForm::kCall) continue;
    v1::NamedTarget& one = *response.add_targets();
    one.set_name(name);
    one.set_title(target.title);
    one.set_version(target.version_to);
    one.set_takes_file(target.form == planner::SettingsForm::kJson);
    for (const planner::LiveField& live : target.live) one.add_live(live.field);
  }
  return response;
}

}  // namespace moeplan::service
