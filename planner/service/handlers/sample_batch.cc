#include "planner/service/handlers/sample_batch.h"

#include <utility>

#include "models/cost/plausible.h"
#include "planner/service/errors.h"
#include "planner/service/puts.h"
#include "planner/service/samples/screen.h"
#include "proto/convert/samples.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

StatusOr<SampleSet> SamplesOf(const v1::Samples& message) {
  if (message.name().empty()) return moeplan::error::Mismatch("samples.name", "nothing", "a text that is not empty");
  if (message.samples().empty()) {
    return moeplan::error::Mismatch("samples.samples", "nothing", "at least one sample");
  }
  StatusOr<SampleSet> samples = UncheckedSamplesFromProto(message);
  if (!samples.ok()) return samples.status().Within("samples");
  RETURN_IF_ERROR(ValidatePossible(samples->cluster, "samples.cluster"));
  return samples;
}

}  // namespace

StatusOr<SampleBatch> BatchOf(const Environment& environment, const std::string& request_id,
                              const std::string& calibration, const v1::Samples& message) {
  RETURN_IF_ERROR(ValidateRequestId(request_id));
  RETURN_IF_ERROR(ValidateCalibration(calibration));
  SampleBatch batch = {.request_id = request_id, .calibration = calibration};
  ASSIGN_OR_RETURN(batch.samples, SamplesOf(message));
  MayNameAgent may_name_agent;
  if (environment.may_name_agent) {
    may_name_agent = [&](const std::string& agent) { return environment.may_name_agent(agent, environment.caller); };
  }
  batch.rejected = Screen(batch.samples, may_name_agent);
  return batch;
}

}  // namespace moeplan::service
