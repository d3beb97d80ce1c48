#include "planner/service/samples/screen.h"

#include <optional>
#include <utility>

#include "models/cost/plausible.h"
#include "models/text.h"

namespace moeplan::service {
namespace {

std::optional<std::string> WhyNotOfAgent(const MayNameAgent& may_name_agent, const Sample& sample) {
  const auto agent = sample.provenance.find(kAgentKey);
  if (agent == sample.provenance.end() || !may_name_agent || may_name_agent(agent->second)) return std::nullopt;
  return StrCat("provenance.", kAgentKey, ": found '", agent->second,
                "', expected an agent that this planner knows and that attached with the caller's own token or "
                "certificate");
}

}  // namespace

std::vector<Rejection> Screen(const SampleSet& samples, const MayNameAgent& may_name_agent) {
  std::vector<Rejection> rejected;
  for (int i = 0; i < std::ssize(samples.samples); ++i) {
    const Sample& sample = samples.samples[static_cast<size_t>(i)];
    std::optional<std::string> reason = WhyNotOfAgent(may_name_agent, sample);
    if (!reason) reason = WhyImplausible(sample, samples.cluster);
    if (reason) rejected.push_back({.sample = i, .reason = *std::move(reason)});
  }
  return rejected;
}

}  // namespace moeplan::service
