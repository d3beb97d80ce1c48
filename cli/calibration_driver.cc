#include "cli/calibration_driver.h"

#include <utility>
#include <vector>

#include "agent/calibrate.h"
#include "agent/fleet.h"
#include "agent/what_to_measure.h"

namespace moeplan::cli {
namespace {

FleetOptions OptionsFor(const RelayedRanks& ranks) {
  FleetOptions options = {.backend = ranks.backend, .provenance = ranks.provenance};
  if (ranks.collective_deadline_s > 0) options.collective_deadline_s = ranks.collective_deadline_s;
  return options;
}

}  // namespace

CalibrationDriver MakeCalibrationDriver(std::function<std::string()> now_text) {
  return [now_text = std::move(now_text)](RelayedRanks ranks, const CalibrationWork& work) -> Status {
    const FleetOptions fleet_options = OptionsFor(ranks);
    ASSIGN_OR_RETURN(Fleet fleet, Fleet::Start(std::move(ranks.links), fleet_options));
    const Cluster cluster = fleet.cluster();
    ASSIGN_OR_RETURN(const std::vector<Measurement> measurements,
                     WhatToMeasure({.operations = work.operations, .grid = work.grid, .grid_origin = "grid"}, cluster));
    const CalibrationOptions options = {
        .budget_s = work.budget_s,
        .name = work.name,
        .taken_at = now_text(),
        .taken = work.taken,
        .keep = [&](const Sample& sample) { return work.keep(cluster, sample); },
        .progress = [&](const CalibrationProgress& progress) { work.progress(progress.done, progress.what); },
        .left_out = work.log};
    return Calibrate(fleet, measurements, options).status();
  };
}

}  // namespace moeplan::cli
