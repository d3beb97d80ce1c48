#include "planner/service/handlers/append_samples.h"

#include <utility>

#include "planner/service/handlers/sample_batch.h"

namespace moeplan::service {

StatusOr<v1::AppendSamplesResponse> AppendSamples(const Environment& environment,
                                                  const v1::AppendSamplesRequest& request,
                                                  std::stop_token /*cancelled*/) {
  ASSIGN_OR_RETURN(SampleBatch batch,
                   BatchOf(environment, request.request_id(), request.calibration(), request.samples()));
  ASSIGN_OR_RETURN(const BatchOutcome outcome, environment.sample_writer.Append(std::move(batch)));
  v1::AppendSamplesResponse response;
  response.set_stored_samples(outcome.stored_samples);
  response.set_rejected_samples(outcome.rejected_samples);
  return response;
}

}  // namespace moeplan::service
