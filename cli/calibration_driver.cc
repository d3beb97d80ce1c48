#include "cli/calibration_driver.h"

#include <memory>
#include <utility>

#include "agent/calibrate.h"
#include "agent/fleet.h"
#include "agent/rank_links.h"
#include "models/text.h"
#include "models/workload/resolve_grid.h"

namespace moeplan::cli {
namespace {

// The planner's end of ranks as a Fleet wants them.
class RelayedLinks final : public RankLinks {
 public:
  explicit RelayedLinks(RelayedRanks& ranks) : relayed_(ranks) {}

  int nodes() const override { return relayed_.nodes(); }
  int ranks_per_node() const override { return relayed_.ranks_per_node(); }
  std::optional<Unsent> Send(std::span<const v1::RankCommand> commands) override {
    const std::optional<int> lost = relayed_.Send(commands);
    if (!lost) return std::nullopt;
    return Unsent{*lost, PeerLost(StrCat("its process was ", relayed_.EndOf(*lost)))};
  }
  std::vector<int> Await(const std::vector<bool>& wanted, Moment until) override {
    return relayed_.Await(wanted, until);
  }
  StatusOr<v1::RankReply> Receive(int rank) override { return relayed_.Take(rank); }
  std::string EndOf(int rank) override { return relayed_.EndOf(rank); }
  int ProcessOf(int /*rank*/) const override { return 0; }

 private:
  RelayedRanks& relayed_;
};

FleetOptions OptionsFor(const RelayedRanks& ranks) {
  FleetOptions options = {.backend = ranks.backend(), .provenance = ranks.provenance()};
  if (ranks.collective_deadline_s() > 0) options.collective_deadline_s = ranks.collective_deadline_s();
  return options;
}

StatusOr<std::vector<Measurement>> WhatToMeasure(const CalibrationWork& work, const Cluster& cluster) {
  StatusOr<std::vector<Workload>> resolved = ResolveGrid(work.grid, cluster);
  if (!resolved.ok()) return resolved.status().Within("grid");
  if (!work.operations.empty()) return MeasurementsOfOperations(work.operations, *resolved, cluster);
  return resolved->empty() ? MeasurementsOfLayouts(cluster) : MeasurementsOf(*resolved, cluster);
}

}  // namespace

CalibrationDriver MakeCalibrationDriver(std::function<std::string()> now_text) {
  return [now_text = std::move(now_text)](RelayedRanks& ranks, const CalibrationWork& work) -> Status {
    ASSIGN_OR_RETURN(Fleet fleet, Fleet::Start(std::make_unique<RelayedLinks>(ranks), OptionsFor(ranks)));
    const Cluster cluster = fleet.cluster();
    ASSIGN_OR_RETURN(const std::vector<Measurement> measurements, WhatToMeasure(work, cluster));
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
