// Which samples are set aside before they are stored, whoever brings them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "db/store.h"
#include "models/cost/samples.h"

namespace moeplan::service {

// Whether whoever brings samples may say that this agent took them.
using MayNameAgent = std::function<bool(const std::string& agent)>;

// The samples that cannot be right (models/cost/plausible.h) and those whose provenance names an agent (kAgentKey) that
// `may_name_agent` denies; without it every name passes. Their keys must be valid. Pure, but for what it calls.
std::vector<Rejection> Screen(const SampleSet& samples, const MayNameAgent& may_name_agent);

}  // namespace moeplan::service
