#include "executor/sim/sim_world.h"

#include <pthread.h>

#include <cstring>
#include <utility>
#include <vector>

#include "executor/sim/errors.h"
#include "executor/sim/rank_turns.h"
#include "executor/sim/sim_kernels.h"
#include "executor/sim/sim_machine.h"
#include "executor/virtual/errors.h"
#include "executor/virtual/virtual_communicator.h"
#include "executor/virtual/virtual_device.h"

namespace moeplan::executor {
namespace {

// Address space; a thread has as much of it in memory as it has used.
constexpr size_t kStackBytes = 1 << 20;

// A thread of few demands, as there may be thousands.
class RankThread {
 public:
  explicit RankThread(std::function<void()> body) : body_(std::move(body)) {}
  RankThread(RankThread&&) = delete;
  ~RankThread() {
    if (started_) pthread_join(thread_, nullptr);
  }

  // An error number of the system, 0: none.
  int Start() {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    const auto run = [](void* self) -> void* {
      static_cast<RankThread*>(self)->body_();
      return nullptr;
    };
    const int error = pthread_create(&thread_, &attributes, run, this);
    pthread_attr_destroy(&attributes);
    started_ = error == 0;
    return error;
  }

 private:
  const std::function<void()> body_;
  pthread_t thread_{};
  bool started_ = false;
};

// What the ranks share that have joined equally often.
struct SimJob {
  SimJob(VirtualMachine& machine, VirtualConductor& conductor, int ranks) : job(machine) {
    job.conductor = &conductor;
    for (int rank = 0; rank < ranks; ++rank) job.devices.push_back(std::make_unique<VirtualDevice>(job, rank));
    world = groups->MakeWorld(job);
  }

  VirtualJob job;
  const std::unique_ptr<VirtualGroups> groups = MakeVirtualGroups();
  std::vector<std::unique_ptr<Communicator>> world;  // By rank.
};

class SimRank final : public Rank {
 public:
  SimRank(SimJob& job, const SimulatedGpu& gpu, int rank, bool computes, bool repeats_times,
          KernelsFactory make_kernels)
      : device_(*job.job.devices[rank]),
        world_(*job.world[rank]),
        gpu_(gpu),
        computes_(computes),
        repeats_times_(repeats_times),
        runtime_(device_, world_, std::move(make_kernels)) {}

  Device& device() override { return device_; }
  Communicator& world() override { return world_; }
  RankRuntime& runtime() override { return runtime_; }
  bool computes() const override { return computes_; }
  bool repeats_times() const override { return repeats_times_; }
  std::function<void(Stream&)> StepKernel(const KernelKey& key, double size) override {
    return [this, key, size](Stream& stream) { EnqueueStepKernel(gpu_, key, size, stream); };
  }
  std::function<void(Stream&)> TimedKernel(double time_s) override {
    return [time_s](Stream& stream) { EnqueueTimedKernel(time_s, stream); };
  }
  void Fail(const Status& why) override { device_.Fail(why); }
  // There are none.
  Status CoolCaches() override { return OkStatus(); }

 private:
  VirtualDevice& device_;
  Communicator& world_;
  const SimulatedGpu gpu_;
  const bool computes_, repeats_times_;
  RankRuntime runtime_;
};

class SimJoin final : public RankJoin {
 public:
  SimJoin(SimJob& job, const SimulatedGpu& gpu, int rank, bool computes, bool repeats_times,
          KernelsFactory make_kernels)
      : job_(job),
        gpu_(gpu),
        rank_(rank),
        computes_(computes),
        repeats_times_(repeats_times),
        make_kernels_(std::move(make_kernels)),
        address_(StrCat("simulated:", rank)) {}

  const std::string& address() const override { return address_; }
  StatusOr<std::unique_ptr<Rank>> Connect(const std::vector<std::string>& /*addresses*/) override {
    return std::make_unique<SimRank>(job_, gpu_, rank_, computes_, repeats_times_, make_kernels_);
  }

 private:
  SimJob& job_;
  const SimulatedGpu gpu_;
  const int rank_;
  const bool computes_, repeats_times_;
  const KernelsFactory make_kernels_;
  const std::string address_;
};

class ConductedWorld final : public SimWorld, private RankBackend {
 public:
  ConductedWorld(Network& network, int ranks, bool data)
      : network_(network), data_(data), machine_(network, data), turns_(ranks), joins_(ranks, 0) {}

  // What still happens is nobody's, but its actions must find the jobs.
  ~ConductedWorld() override {
    while (network_.PlayNext()) {
    }
  }

  int ranks() const override { return static_cast<int>(joins_.size()); }
  const RankBackend& backend() const override { return *this; }

  Status Run(const std::function<void(int rank)>& program) override {
    std::vector<std::unique_ptr<RankThread>> threads;
    Status failure;  // Once one thread cannot start, those before it end at once.
    for (int rank = 0; rank < ranks(); ++rank) {
      const auto body = [&, rank] {
        turns_.Begin(rank);
        if (failure.ok()) program(rank);
        turns_.End(rank);
      };
      threads.push_back(std::make_unique<RankThread>(body));
      const int error = failure.ok() ? threads.back()->Start() : 0;
      if (error != 0) failure = error::CannotStartThread(rank, std::strerror(error));
      if (!failure.ok()) turns_.EndUnbegun(rank);
    }
    turns_.Conduct({.next = [this] { return network_.PlayNext(); },
                    .fail_all = [this](const std::vector<std::string>& waiting) { FailAll(waiting); }});
    return failure;
  }

  void Outside(int rank, const std::function<void()>& function) override { turns_.Outside(rank, function); }

  // ---- As RankBackend, on rank threads.
  const char* name() const override { return "sim"; }
  std::map<std::string, std::string> FactsAt(const RankPlace& /*place*/) const override {
    return {{"backend", name()}, {"simulatedCluster", network_.cluster().name}};
  }
  double DeviceMemoryBytesAt(const RankPlace& /*place*/) const override {
    return network_.cluster().gpu.device_memory_bytes;
  }
  LinkRates LinkRatesAt(const RankPlace& /*place*/) const override {
    const SimulatedCluster& cluster = network_.cluster();
    return {.node_link_bytes_per_s = NodeLinkBytesPerS(cluster), .network_bytes_per_s = NetworkBytesPerS(cluster)};
  }
  StatusOr<std::unique_ptr<RankJoin>> Join(const RankPlace& place) const override {
    if (place.ranks != ranks()) return error::OtherRanks(place.ranks, ranks());
    const SimulatedNoise& noise = network_.cluster().noise;
    const bool repeats_times = noise.compute_sigma == 0 && noise.transfer_sigma == 0;
    return std::make_unique<SimJoin>(JobOf(joins_[place.rank]++), network_.cluster().gpu, place.rank, data_,
                                     repeats_times, KernelsFactoryOf());
  }

 private:
  SimJob& JobOf(size_t number) const {
    while (jobs_.size() <= number) jobs_.push_back(std::make_unique<SimJob>(machine_, turns_, ranks()));
    return *jobs_[number];
  }

  KernelsFactory KernelsFactoryOf() const {
    return [gpu = network_.cluster().gpu, data = data_](const Layer& layer, const LayerWeightsView& weights,
                                                        const LayerGradientsView& gradients) {
      return MakeSimKernels(gpu, data, layer, weights, gradients);
    };
  }

  void FailAll(const std::vector<std::string>& waiting) {
    std::vector<std::string> clauses;
    for (size_t rank = 0; rank < waiting.size(); ++rank) {
      if (!waiting[rank].empty()) clauses.push_back(StrCat("rank ", rank, " waits for ", waiting[rank]));
    }
    const Status deadlock = error::Deadlock(network_.now_s(), clauses);
    for (const auto& job : jobs_) {
      FailDeadlocked(job->job, clauses);
      for (size_t rank = 0; rank < waiting.size(); ++rank) {
        if (!waiting[rank].empty()) job->job.devices[rank]->Fail(deadlock);
      }
    }
  }

  Network& network_;
  const bool data_;
  // Joining is const for those who join.
  mutable SimMachine machine_;
  mutable RankTurns turns_;
  mutable std::vector<size_t> joins_;  // By rank.
  // All of them stay: SimGrid may still have something under way for one that failed.
  mutable std::vector<std::unique_ptr<SimJob>> jobs_;
};

}  // namespace

StatusOr<std::unique_ptr<SimWorld>> SimWorld::Make(Network& network, const SimOptions& options) {
  const int gpus = Gpus(network.cluster()), ranks = options.ranks == 0 ? gpus : options.ranks;
  if (ranks < 1 || ranks > gpus) return error::MoreRanksThanGpus(ranks, gpus);
  return std::make_unique<ConductedWorld>(network, ranks, options.data);
}

}  // namespace moeplan::executor
