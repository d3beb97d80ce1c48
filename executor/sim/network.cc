#include "executor/sim/network.h"

#include "executor/sim/errors.h"

#include <xbt/log.h>
#include <simgrid/kernel/resource/Action.hpp>
#include <simgrid/kernel/resource/Model.hpp>
#include <simgrid/s4u.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/check.h"
#include "models/text.h"

namespace moeplan::executor {

namespace {

namespace s4u = simgrid::s4u;

// How far a transfer goes.
enum Reach { kNode, kLeaf, kBeyond };
constexpr int kReaches = 3;

// Payloads are whole numbers, so processors count picoseconds.
constexpr double kProcessorUnitsPerS = 1e12;
// Flows always end before; run_until wants an end.
constexpr double kLongS = 1e9;

// Plain max-min sharing, and times that are exact to what a double holds: by default SimGrid ends a flow up to 10 µs
// early.
void Configure() {
  for (const char* setting :
       {"network/model:CM02", "network/TCP-gamma:0", "network/weight-S:0", "network/crosstraffic:0",
        "network/bandwidth-factor:1", "network/latency-factor:1", "surf/precision:1e-12", "maxmin/precision:1e-9"}) {
    s4u::Engine::set_config(std::string(setting));
  }
}

simgrid::kernel::resource::Model& NetworkModel(const s4u::Engine& engine) {
  for (simgrid::kernel::resource::Model* model : engine.get_all_models()) {
    if (model->get_name().starts_with("Network")) return *model;
  }
  MOEPLAN_CHECK(false && "SimGrid has a network model");
  std::abort();
}

// The links of a cluster. SimGrid routes between hosts: here a host is an end of paths, with the links from there up to
// where all paths meet, and those back. A GPU has one for each reach.
class Platform {
 public:
  explicit Platform(const SimulatedCluster& cluster) : cluster_(cluster) {
    nowhere_ = MakeEnd("nowhere", {}, {});
    MakeShared();
    for (int gpu = 0; gpu < Gpus(cluster); ++gpu) MakeGpu(gpu);
    if (cluster.gpu_link.kind == GpuLinkKind::kMesh) MakePairs();
    zone_->seal();
  }

  Reach ReachOf(int from, int to) const {
    if (NodeOf(from) == NodeOf(to)) return kNode;
    return LeafOf(NodeOf(from)) == LeafOf(NodeOf(to)) ? kLeaf : kBeyond;
  }

  // Of a flow from end to end. `nowhere` takes and gives what no link holds up.
  s4u::Host* nowhere() const { return nowhere_; }
  s4u::Host* End(int gpu, Reach reach) const { return gpus_[gpu].ends[reach]; }
  s4u::Host* Memory(int gpu) const { return gpus_[gpu].memory_end; }
  s4u::Host* Processor(int gpu) const { return gpus_[gpu].processor_end; }
  // Of a MESH: all of the path between two GPUs of a node.
  s4u::Host* Pair(int from, int to) const { return pairs_.at({from, to}); }

 private:
  using Links = std::vector<s4u::LinkInRoute>;

  struct Gpu {
    s4u::Link* memory = nullptr;
    s4u::Host *ends[kReaches] = {}, *memory_end = nullptr, *processor_end = nullptr;
  };
  struct BothWays {
    s4u::Link *up = nullptr, *down = nullptr;
  };

  int NodeOf(int gpu) const { return gpu / cluster_.gpus_per_node; }
  int LeafOf(int node) const {
    return cluster_.leaf_switch.nodes_per_leaf == 0 ? 0 : node / cluster_.leaf_switch.nodes_per_leaf;
  }
  // The interfaces of a node that are told apart.
  int NicsPerNode() const {
    const int gpus = cluster_.gpus_per_node;
    return cluster_.nic.per_gpu ? gpus : std::min(cluster_.nic.per_node, gpus);
  }
  double NodeBytesPerS() const {
    const int nics = cluster_.nic.per_gpu ? cluster_.gpus_per_node : cluster_.nic.per_node;
    return nics * cluster_.nic.bytes_per_s;
  }

  // Latencies pass before a flow begins: SimGrid shares links in inverse proportion to those of a path.
  s4u::Link* MakeLink(const std::string& name, double bytes_per_s) {
    return zone_->create_link(name, bytes_per_s)->set_latency(0.0)->seal();
  }
  BothWays MakeBothWays(const std::string& name, double bytes_per_s) {
    return {MakeLink(name + " up", bytes_per_s), MakeLink(name + " down", bytes_per_s)};
  }

  s4u::Host* MakeEnd(const std::string& name, const Links& up, const Links& down) {
    s4u::Host* end = zone_->create_host(name, /*speed=*/1)->seal();
    zone_->add_route(end->get_netpoint(), nullptr, nullptr, nullptr, up, /*symmetrical=*/false);
    zone_->add_route(nullptr, end->get_netpoint(), nullptr, nullptr, down, /*symmetrical=*/false);
    return end;
  }

  void MakeShared() {
    const int leaves = LeafOf(cluster_.nodes - 1) + 1, nics = NicsPerNode();
    for (int node = 0; node < cluster_.nodes; ++node) {
      if (cluster_.gpu_link.kind == GpuLinkKind::kSharedBus) {
        buses_.push_back(MakeBothWays(StrCat("bus ", node), cluster_.gpu_link.bytes_per_s));
      }
      for (int nic = 0; nic < nics; ++nic) {
        nics_.push_back(MakeBothWays(StrCat("nic ", node, ".", nic), NodeBytesPerS() / nics));
      }
    }
    const double leaf_bytes_per_s =
        NodeBytesPerS() * cluster_.leaf_switch.nodes_per_leaf / cluster_.leaf_switch.oversubscription;
    for (int leaf = 0; leaves > 1 && leaf < leaves; ++leaf) {
      leaves_.push_back(MakeBothWays(StrCat("leaf ", leaf), leaf_bytes_per_s));
    }
  }

  void MakeGpu(int gpu) {
    Gpu& made = gpus_.emplace_back();
    made.memory = MakeLink(StrCat("memory ", gpu), cluster_.gpu.memory_bytes_per_s);
    made.memory_end = MakeEnd(StrCat("memory end ", gpu), {s4u::LinkInRoute(made.memory)}, {});
    made.processor_end = MakeEnd(StrCat("processor end ", gpu),
                                 {s4u::LinkInRoute(MakeLink(StrCat("processor ", gpu), kProcessorUnitsPerS))}, {});
    const int node = NodeOf(gpu), local = gpu % cluster_.gpus_per_node;
    std::vector<BothWays> way;
    if (cluster_.gpu_link.kind == GpuLinkKind::kSharedBus) way.push_back(buses_[node]);
    if (cluster_.gpu_link.kind == GpuLinkKind::kSwitched) {
      made.ends[kNode] = MakeGpuEnd(gpu, kNode, {MakeBothWays(StrCat("port ", gpu), cluster_.gpu_link.bytes_per_s)});
    } else {
      made.ends[kNode] = MakeGpuEnd(gpu, kNode, way);
    }
    way.push_back(nics_[node * NicsPerNode() + local * NicsPerNode() / cluster_.gpus_per_node]);
    made.ends[kLeaf] = MakeGpuEnd(gpu, kLeaf, way);
    if (!leaves_.empty()) way.push_back(leaves_[LeafOf(node)]);
    made.ends[kBeyond] = MakeGpuEnd(gpu, kBeyond, way);
  }

  s4u::Host* MakeGpuEnd(int gpu, Reach reach, const std::vector<BothWays>& way) {
    Links up = {s4u::LinkInRoute(gpus_[gpu].memory)}, down = up;
    for (const BothWays& link : way) {
      up.emplace_back(link.up);
      down.insert(down.begin(), s4u::LinkInRoute(link.down));
    }
    return MakeEnd(StrCat("gpu ", gpu, ".", static_cast<int>(reach)), up, down);
  }

  void MakePairs() {
    for (int from = 0; from < Gpus(cluster_); ++from) {
      for (int local = 0; local < cluster_.gpus_per_node; ++local) {
        const int to = NodeOf(from) * cluster_.gpus_per_node + local;
        if (from == to) continue;
        s4u::Link* link = MakeLink(StrCat("pair ", from, "-", to), cluster_.gpu_link.bytes_per_s);
        const Links path = {s4u::LinkInRoute(gpus_[from].memory), s4u::LinkInRoute(link),
                            s4u::LinkInRoute(gpus_[to].memory)};
        pairs_[{from, to}] = MakeEnd(StrCat("pair end ", from, "-", to), path, {});
      }
    }
  }

  const SimulatedCluster& cluster_;
  s4u::NetZone* const zone_ = s4u::create_star_zone("cluster");
  s4u::Host* nowhere_ = nullptr;
  std::vector<BothWays> buses_, nics_, leaves_;
  std::vector<Gpu> gpus_;
  std::map<std::pair<int, int>, s4u::Host*> pairs_;
};

// Counts what an operation still waits for.
class Countdown {
 public:
  Countdown(size_t count, Agenda::Action done)
      : left_(std::make_shared<size_t>(count)), done_(std::make_shared<Agenda::Action>(std::move(done))) {}
  void operator()() const {
    if (--*left_ == 0) (*done_)();
  }

 private:
  // Shared by the copies of the actions that it stands for.
  std::shared_ptr<size_t> left_;
  std::shared_ptr<Agenda::Action> done_;
};

class SimGridNetwork final : public Network {
 public:
  SimGridNetwork(const SimulatedCluster& cluster, const NetworkOptions& options)
      : cluster_(cluster), options_(options), random_(cluster.noise.seed), slowdown_(Gpus(cluster), 1.0) {
    for (const Straggler& straggler : cluster.noise.stragglers) slowdown_[straggler.gpu] = straggler.slowdown;
    // With an activity that waits for others, run_until returns after each step in time.
    stops_at_each_step_.insert(nullptr);
    engine_.track_vetoed_activities(&stops_at_each_step_);
    s4u::Activity::on_completion_cb([this](const s4u::Activity& flow) { Ended(*flow.get_data<Flow>()); });
  }

  const SimulatedCluster& cluster() const override { return cluster_; }

  bool PlayNext() override {
    if (flows_.empty() || next_s() <= now_s()) return Agenda::PlayNext();
    engine_.run_until(std::min(next_s(), now_s() + kLongS));
    MoveTo(std::clamp(s4u::Engine::get_clock(), now_s(), next_s()));
    TakeEnded();
    return true;
  }

  void Exchange(std::span<const Traffic> transfers, std::optional<double> latency_s, Action done) override {
    std::vector<PlannedFlow> flows = IsFew(transfers) ? OneFlowEach(transfers) : SumsOfEnds(transfers);
    const double factor = Noise(cluster_.noise.transfer_sigma);
    for (PlannedFlow& flow : flows) {
      flow.bytes *= factor;
      if (latency_s) flow.latency_s = *latency_s;
    }
    Launch(std::move(flows), std::move(done));
  }

  void Work(int gpu, const GpuWork& work, Action done) override {
    const double factor = Noise(cluster_.noise.compute_sigma) * slowdown_[gpu];
    const double units = work.compute_s * factor * kProcessorUnitsPerS;
    Launch({{platform_.Processor(gpu), platform_.nowhere(), units},
            {platform_.Memory(gpu), platform_.nowhere(), work.memory_bytes * factor}},
           std::move(done));
  }

  double LatencyS(int from, int to) const override { return from == to ? 0 : LatencyOf(platform_.ReachOf(from, to)); }

 private:
  struct Flow {
    uint64_t number = 0;
    Action done;
    s4u::CommPtr comm;
  };

  struct PlannedFlow {
    s4u::Host *from = nullptr, *to = nullptr;
    double bytes = 0;
    double latency_s = 0;
    double weight = 1;  // Its share of a link, over that of one transfer.
  };

  double LatencyOf(Reach reach) const {
    if (reach == kNode) return cluster_.gpu_link.latency_s;
    const bool over_bus = cluster_.gpu_link.kind == GpuLinkKind::kSharedBus;
    return cluster_.nic.latency_s + (over_bus ? 2 * cluster_.gpu_link.latency_s : 0) +
           (reach == kBeyond ? cluster_.leaf_switch.latency_s : 0);
  }

  double Noise(double sigma) { return sigma == 0 ? 1 : std::exp(sigma * std::normal_distribution<>()(random_)); }

  PlannedFlow FlowOf(const Traffic& traffic) const {
    const auto& [from, to, bytes] = traffic;
    if (from == to) return {platform_.Memory(from), platform_.nowhere(), 2 * bytes};
    const Reach reach = platform_.ReachOf(from, to);
    const double latency_s = LatencyOf(reach);
    if (InMesh(reach)) return {platform_.Pair(from, to), platform_.nowhere(), bytes, latency_s};
    return {platform_.End(from, reach), platform_.End(to, reach), bytes, latency_s};
  }

  bool InMesh(Reach reach) const { return reach == kNode && cluster_.gpu_link.kind == GpuLinkKind::kMesh; }

  bool IsFew(std::span<const Traffic> transfers) const {
    if (transfers.size() > options_.exact_transfers) return false;
    std::set<int> senders;
    for (const Traffic& traffic : transfers) senders.insert(traffic.from);
    const size_t of_each = transfers.size() / std::max<size_t>(senders.size(), 1);
    // Sums would be as many, or would not be exact.
    const auto as_many_bytes = [&](const Traffic& one) { return one.bytes == transfers.front().bytes; };
    if (of_each <= 2 || !std::ranges::all_of(transfers, as_many_bytes)) return true;
    return of_each * Gpus(cluster_) <= options_.exact_transfers_of_all;
  }

  std::vector<PlannedFlow> OneFlowEach(std::span<const Traffic> transfers) const {
    std::vector<PlannedFlow> flows;
    for (const Traffic& traffic : transfers) flows.push_back(FlowOf(traffic));
    return flows;
  }

  static double MeanBytes(std::span<const Traffic> transfers) {
    double bytes = 0;
    int count = 0;
    for (const Traffic& traffic : transfers) {
      bytes += traffic.bytes;
      count += traffic.bytes > 0 ? 1 : 0;
    }
    return bytes / std::max(count, 1);
  }

  std::vector<PlannedFlow> SumsOfEnds(std::span<const Traffic> transfers) const {
    std::vector<PlannedFlow> flows;
    std::vector<PlannedFlow> sums(static_cast<size_t>(Gpus(cluster_)) * kReaches * 2);
    const auto add = [&](int gpu, Reach reach, bool sends, double bytes) {
      PlannedFlow& sum = sums[(gpu * kReaches + reach) * 2 + (sends ? 1 : 0)];
      if (sum.from == nullptr) {
        s4u::Host *own = platform_.End(gpu, reach), *other = platform_.nowhere();
        sum = {sends ? own : other, sends ? other : own, 0, LatencyOf(reach)};
      }
      sum.bytes += bytes;
    };
    for (const Traffic& traffic : transfers) {
      const Reach reach = platform_.ReachOf(traffic.from, traffic.to);
      if (traffic.from == traffic.to || InMesh(reach)) {
        flows.push_back(FlowOf(traffic));
        continue;
      }
      add(traffic.from, reach, /*sends=*/true, traffic.bytes);
      add(traffic.to, reach, /*sends=*/false, traffic.bytes);
    }
    // Weights by bytes, not by transfers: what has more to carry lasts longer, as it would one by one.
    const double mean_bytes = MeanBytes(transfers);
    for (PlannedFlow& sum : sums) {
      if (sum.from == nullptr) continue;
      sum.weight = sum.bytes / mean_bytes;
      flows.push_back(sum);
    }
    return flows;
  }

  // Those of equal latency begin together.
  void Launch(std::vector<PlannedFlow> flows, Action done) {
    if (flows.empty()) return After(0, std::move(done));
    const Countdown countdown(flows.size(), std::move(done));
    std::map<double, std::vector<PlannedFlow>> by_latency;
    for (const PlannedFlow& flow : flows) by_latency[flow.latency_s].push_back(flow);
    for (auto& [latency_s, together] : by_latency) {
      After(latency_s, [this, together = std::move(together), countdown] {
        CatchUp();
        for (const PlannedFlow& flow : together) Begin(flow, countdown);
      });
    }
  }

  // SimGrid's clock stands still while there are no flows.
  void CatchUp() {
    if (s4u::Engine::get_clock() >= now_s()) return;
    engine_.run_until(now_s());
    TakeEnded();
  }

  void Begin(const PlannedFlow& planned, const Countdown& countdown) {
    const auto bytes = static_cast<uint64_t>(std::ceil(planned.bytes));
    if (bytes == 0) return After(0, countdown);
    Flow& flow = flows_[begun_];
    flow = {.number = begun_++, .done = countdown, .comm = s4u::Comm::sendto_init(planned.from, planned.to)};
    flow.comm->set_payload_size(bytes)->set_data(&flow);
    flow.comm->start();
    // The action that start() has made is the newest.
    if (planned.weight != 1) model_.get_started_action_set()->back().set_sharing_penalty(1 / planned.weight);
  }

  void Ended(Flow& flow) { ended_.push_back(flow.number); }

  // In the order in which they began, whatever SimGrid's.
  void TakeEnded() {
    std::ranges::sort(ended_);
    for (const uint64_t number : std::exchange(ended_, {})) {
      After(0, std::move(flows_.extract(number).mapped().done));
    }
  }

  const SimulatedCluster cluster_;
  const NetworkOptions options_;
  std::mt19937_64 random_;
  std::vector<double> slowdown_;  // By GPU.
  s4u::Engine& engine_ = *s4u::Engine::get_instance();
  const Platform platform_{cluster_};
  simgrid::kernel::resource::Model& model_ = NetworkModel(engine_);
  std::set<s4u::Activity*> stops_at_each_step_;
  std::unordered_map<uint64_t, Flow> flows_;  // Under way, by number.
  uint64_t begun_ = 0;
  std::vector<uint64_t> ended_;
};

}  // namespace

StatusOr<std::unique_ptr<Network>> Network::Make(const SimulatedCluster& cluster, const NetworkOptions& options) {
  if (s4u::Engine::is_initialized()) {
    return error::SecondSimulation();
  }
  RETURN_IF_ERROR(ValidateSimulatedCluster(cluster));
  xbt_log_control_set("root.thresh:critical");
  // SimGrid ends its engine itself, at the end of the process.
  new s4u::Engine("moeplan");
  Configure();
  return std::make_unique<SimGridNetwork>(cluster, options);
}

}  // namespace moeplan::executor
