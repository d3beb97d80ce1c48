#include "planner/service/handlers/put_samples.h"

#include <utility>

#include "planner/service/errors.h"
#include "planner/service/handlers/sample_batch.h"
#include "planner/service/samples/fit_together.h"

namespace moeplan::service {

StatusOr<v1::PutSamplesResponse> PutSamples(const Environment& environment, const v1::PutSamplesRequest& request,
                                            std::stop_token cancelled) {
  ASSIGN_OR_RETURN(SampleBatch batch, BatchOf(environment, request.request_id(), "", request.samples()));
  // From the append on, so that no other put's samples come between: each put that is not cancelled is a version of its
  // own. Of one that is, the samples may be stored and fitted with the next.
  ASSIGN_OR_RETURN(const Puts::Turn turn, environment.puts.TakeTurn(request.samples().name(), cancelled));
  ASSIGN_OR_RETURN(const BatchOutcome outcome, environment.sample_writer.Append(std::move(batch)));
  v1::PutSamplesResponse response;
  response.set_profile_name(request.samples().name());
  response.set_stored_samples(outcome.stored_samples);
  response.set_rejected_samples(outcome.rejected_samples);
  if (outcome.stored_samples == 0) return response;
  ASSIGN_OR_RETURN(const Profile profile,
                   FitStored(environment.store, "PutSamples " + request.request_id(), request.samples().name(),
                             UnknownPeak::kStaysUnknown, {.stop = cancelled, .memory = &environment.puts.fits()}));
  response.set_profile_version(profile.version);
  return response;
}

}  // namespace moeplan::service
