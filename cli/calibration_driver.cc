#include "cli/calibration_driver.h"

#include <utility>
#include <vector>

#include "agent/calibrate.h"
#include "agent/fleet.h"
#include "agent/what_to_measure.h"
#include "cli/calibrated_models.h"

namespace moeplan::cli {
namespace {

agent::FleetOptions OptionsFor(const service::RelayedRanks& ranks) {
  agent::FleetOptions options = {.backend = ranks.backend, .provenance = ranks.provenance};
  if (ranks.collective_deadline_s > 0) options.collective_deadline_s = ranks.collective_deadline_s;
  return options;
}

// The models that were asked for need them, or the usual ones where there are GPUs and nobody asked for any.
StatusOr<std::vector<Need>> StepNeedsOf(const service::CalibrationWork& work, const std::string& backend,
                                        const Cluster& cluster) {
  if (!work.grid.empty() || !work.operations.empty()) return std::vector<Need>();
  return work.models.empty() ? NeedsOfUsualModels(backend, cluster) : NeedsOfModels(work.models, cluster);
}

}  // namespace

service::CalibrationDriver MakeCalibrationDriver(std::function<std::string()> now_text) {
  return [now_text = std::move(now_text)](service::RelayedRanks ranks, const service::CalibrationWork& work) -> Status {
    const agent::FleetOptions fleet_options = OptionsFor(ranks);
    ASSIGN_OR_RETURN(agent::Fleet fleet, agent::Fleet::Start(std::move(ranks.links), fleet_options));
    const Cluster cluster = fleet.cluster();
    ASSIGN_OR_RETURN(std::vector<Need> step_needs, StepNeedsOf(work, fleet_options.backend, cluster));
    ASSIGN_OR_RETURN(const std::vector<agent::Measurement> measurements,
                     agent::WhatToMeasure({.operations = work.operations,
                                           .grid = work.grid,
                                           .grid_origin = "grid",
                                           .step_needs = std::move(step_needs)},
                                          cluster));
    const agent::CalibrationOptions options = {
        .budget_s = work.budget_s,
        .name = work.name,
        .taken_at = now_text(),
        .taken = work.taken,
        .keep = [&](const Sample& sample) { return work.keep(cluster, sample); },
        .progress = [&](const agent::CalibrationProgress& progress) { work.progress(progress.done, progress.what); },
        .left_out = work.log};
    return agent::Calibrate(fleet, measurements, options).status();
  };
}

}  // namespace moeplan::cli
