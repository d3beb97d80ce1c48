#include "planner/service/handlers/step.h"

#include <string>
#include <utility>

#include "planner/layout/price_layout.h"
#include "planner/service/handlers/job_question.h"
#include "proto/convert/step.h"

namespace moeplan::service {

StatusOr<v1::StepResponse> Step(const Environment& environment, const v1::StepRequest& request,
                                std::stop_token cancelled) {
  StepQuestion question;
  question.request.gpus = GpusOf(request);
  question.request.global_batch = request.global_batch();
  question.request.sequence_length = request.sequence_length();
  ASSIGN_OR_RETURN(question.request.model, ModelOf(request));
  RETURN_IF_ERROR(ReadStepLayout(request.layout(), "layout", question));
  ASSIGN_OR_RETURN(const Profile profile,
                   ProfileFor(environment.store, request, question.request.model, question.request.gpus));
  if (question.request.gpus == 0) question.request.gpus = Ranks(profile.cluster);
  const planner::StopSignals stop = {.cancelled = std::move(cancelled), .out_of_time = {}};
  ASSIGN_OR_RETURN(const StepAnswer answer, planner::PriceLayout(question, profile, stop));
  v1::StepResponse response;
  response.set_profile_name(profile.name);
  response.set_profile_version(profile.version);
  *response.mutable_result() = ToProto(answer, question.request.gpus);
  const std::string faster = planner::FasterLayers(question, answer, profile, stop);
  if (!faster.empty()) response.mutable_result()->add_warnings(faster);
  if (!request.has_against()) return response;
  StepQuestion other = question;
  RETURN_IF_ERROR(ReadStepLayout(request.against(), "against", other));
  const auto ratio = planner::CompareLayouts(question, other, profile, stop);
  if (!ratio.ok()) return ratio.status().Within("against");
  SetGain(*ratio, *response.mutable_result());
  return response;
}

}  // namespace moeplan::service
