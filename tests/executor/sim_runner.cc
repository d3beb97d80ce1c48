#include "tests/executor/sim_runner.h"

#include <stdexcept>

#include "executor/sim/sim_world.h"
#include "tests/executor/sim_cluster.h"

namespace moeplan::testing {
namespace {

// Nodes of four, as SimGrid plays one cluster a process.
executor::Network& TestNetwork() {
  SimulatedCluster cluster = SmallCluster();
  cluster.nodes = 4;
  cluster.gpus_per_node = 4;
  static const auto network = executor::Network::Make(cluster);
  if (!network.ok()) throw std::runtime_error(network.status().message());
  return **network;
}

class SimRunner final : public JobRunner {
 public:
  void Run(int ranks, const Program& program) override {
    const auto world = executor::SimWorld::Make(TestNetwork(), {.ranks = ranks});
    if (!world.ok()) throw std::runtime_error(world.status().message());
    const Status ran = (*world)->Run([&](int rank) {
      const auto join = (*world)->backend().Join({.rank = rank, .ranks = ranks});
      const std::unique_ptr<executor::Rank> self = *(*join)->Connect({});
      RunRounds({rank, self->device(), self->world(), self->runtime().make_kernels()}, program);
    });
    if (!ran.ok()) throw std::runtime_error(ran.message());
  }
};

}  // namespace

std::unique_ptr<JobRunner> MakeSimRunner() { return std::make_unique<SimRunner>(); }

}  // namespace moeplan::testing
