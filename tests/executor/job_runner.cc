#include "tests/executor/job_runner.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>

#include "executor/host/gloo_mesh.h"

namespace moeplan::testing {
namespace {

class ThreadRunner final : public JobRunner {
 public:
  void Run(int ranks, const Program& program) override {
    RunRanks(ranks, [&](Rank rank) { RunRounds(rank, program); });
  }
};

class GlooRunner final : public JobRunner {
 public:
  void Run(int ranks, const Program& program) override {
    RunRanks(ranks, MakeGlooMeshes(ranks), [&](Rank rank) { RunRounds(rank, program); });
  }
};

class VirtualRunner final : public JobRunner {
 public:
  explicit VirtualRunner(executor::TaskTime task_time) : task_time_(std::move(task_time)) {}

  void Run(int ranks, const Program& program) override {
    const auto clock = executor::VirtualClock::Make(ranks, task_time_);
    std::vector<std::vector<Round>> rounds;
    for (int rank = 0; rank < ranks; ++rank) {
      rounds.push_back(program({rank, clock->device(rank), clock->world(rank)}));
    }
    for (size_t i = 0; i < rounds[0].size(); ++i) {
      for (const auto& of_rank : rounds) of_rank[i].queue();
      for (int rank = 0; rank < ranks; ++rank) rounds[rank][i].check(clock->device(rank).Synchronize());
    }
  }

 private:
  executor::TaskTime task_time_;
};

}  // namespace

void RunRounds(const Rank& rank, const Program& program) {
  for (const Round& round : program(rank)) {
    round.queue();
    round.check(rank.device.Synchronize());
  }
}

std::unique_ptr<JobRunner> MakeThreadRunner() { return std::make_unique<ThreadRunner>(); }

std::unique_ptr<JobRunner> MakeGlooRunner() { return std::make_unique<GlooRunner>(); }

MakeMesh MakeGlooMeshes(int ranks) {
  const auto joins = std::make_shared<std::vector<std::unique_ptr<executor::GlooJoin>>>();
  std::vector<std::string> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    auto join = executor::StartGlooJoin(rank, ranks, "127.0.0.1");
    if (!join.ok()) throw std::runtime_error(join.status().message());
    addresses.push_back((*join)->address());
    joins->push_back(*std::move(join));
  }
  return [=](int rank) {
    auto mesh = std::move(*(*joins)[rank]).Connect(addresses);
    if (!mesh.ok()) throw std::runtime_error(mesh.status().message());
    return *std::move(mesh);
  };
}

std::unique_ptr<JobRunner> MakeVirtualRunner(executor::TaskTime task_time) {
  return std::make_unique<VirtualRunner>(std::move(task_time));
}

executor::TaskTime ScatteredTimes(uint64_t seed) {
  return [seed](int rank, std::string_view task) {
    std::seed_seq mixed{seed, static_cast<uint64_t>(rank), static_cast<uint64_t>(std::hash<std::string_view>()(task))};
    uint32_t value = 0;
    mixed.generate(&value, &value + 1);
    return value % 4 == 0 ? 0.0 : value * 1e-9;
  };
}

}  // namespace moeplan::testing
