#include "planner/service/handlers/sample_batch.h"

#include <optional>
#include <utility>

#include "models/cost/plausible.h"
#include "models/text.h"
#include "planner/service/errors.h"
#include "planner/service/puts.h"
#include "proto/convert/samples.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

constexpr char kAgentKey[] = "agent";

StatusOr<SampleSet> SamplesOf(const v1::Samples& message) {
  if (message.name().empty()) return moeplan::error::Mismatch("samples.name", "nothing", "a text that is not empty");
  if (message.samples().empty()) {
    return moeplan::error::Mismatch("samples.samples", "nothing", "at least one sample");
  }
  StatusOr<SampleSet> samples = UncheckedSamplesFromProto(message);
  return samples.ok() ? std::move(samples) : samples.status().Within("samples");
}

std::optional<std::string> WhyFromNobody(const std::function<bool(const std::string&)>& knows_agent,
                                         const Sample& sample) {
  const auto agent = sample.provenance.find(kAgentKey);
  if (agent == sample.provenance.end() || !knows_agent || knows_agent(agent->second)) return std::nullopt;
  return StrCat("provenance.", kAgentKey, ": found '", agent->second, "', expected an agent that this planner knows");
}

}  // namespace

std::vector<Rejection> Screen(const SampleSet& samples,
                              const std::function<bool(const std::string& agent)>& knows_agent) {
  std::vector<Rejection> rejected;
  for (int i = 0; i < std::ssize(samples.samples); ++i) {
    const Sample& sample = samples.samples[static_cast<size_t>(i)];
    std::optional<std::string> reason = WhyFromNobody(knows_agent, sample);
    if (!reason) reason = WhyImplausible(sample, samples.cluster);
    if (reason) rejected.push_back({.sample = i, .reason = *std::move(reason)});
  }
  return rejected;
}

StatusOr<SampleBatch> BatchOf(const Environment& environment, const std::string& request_id,
                              const std::string& calibration, const v1::Samples& message) {
  RETURN_IF_ERROR(ValidateRequestId(request_id));
  RETURN_IF_ERROR(ValidateCalibration(calibration));
  SampleBatch batch = {.request_id = request_id, .calibration = calibration};
  ASSIGN_OR_RETURN(batch.samples, SamplesOf(message));
  batch.rejected = Screen(batch.samples, environment.knows_agent);
  return batch;
}

}  // namespace moeplan::service
