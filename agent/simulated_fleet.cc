#include "agent/simulated_fleet.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "agent/rank_session.h"
#include "executor/backends.h"

namespace moeplan::agent {
namespace {

// A rank, in the process that plays it.
executor::RankHandler Serve(const executor::RankBackend& backend) {
  const auto find = [&backend](const std::string&) -> StatusOr<const executor::RankBackend*> { return &backend; };
  return [session = std::shared_ptr<RankSession>(RankSession::Make(/*host_address=*/"", find))](
             const std::string& command) { return AnswerFrame(*session, command); };
}

}  // namespace

StatusOr<std::unique_ptr<executor::Launch>> LaunchSimulatedRanks(const SimulatedCluster& cluster, bool values) {
  ASSIGN_OR_RETURN(executor::Simulator* const launch, executor::FindSimulator());
  return launch(cluster, values, [](int /*rank*/, const executor::RankBackend& backend) { return Serve(backend); });
}

Provenance SimulatedProvenance(const SimulatedCluster& cluster) {
  return {{"launch", "simulated"}, {"simulatedCluster", cluster.name}};
}

StatusOr<Fleet> StartSimulated(const SimulatedCluster& cluster, const SimulatedFleetOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<executor::Launch> ranks, LaunchSimulatedRanks(cluster, options.values));
  return Fleet::Start(std::move(ranks),
                      {.collective_deadline_s = std::max(options.collective_deadline_s, kSimulatedDeadlineS),
                       .provenance = SimulatedProvenance(cluster)});
}

}  // namespace moeplan::agent
