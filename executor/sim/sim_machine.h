// The machine under a virtual job whose ranks are the GPUs of a simulated cluster: rank i is GPU i.
//
// Work takes its launches one after the other, and then its share of the GPU (Network::Work). Work whose size nobody
// has said takes no time.
//
// A group operation is one launch and then the sends that a library makes, on the ring of the group's ranks in order or
// all at once:
//
//   all-to-all, send/recv   every transfer at once
//   all-gather,             n - 1 steps on the ring, as one flow along each of its n links: of the bytes of n - 1
//   reduce-scatter          parts, after the latencies of all links but the one of the least
//   all-reduce              both of them
//   all-to-all with         the all-to-all and, beside it, what each rank sends to the others of its MP group, but for
//   all-gather (SAA)        the last sum, which is gathered when all parts are in
//   barrier                 ⌈log2 n⌉ of the longest latency
//
// It ends for all members at once.
#pragma once

#include <optional>
#include <vector>

#include "executor/sim/network.h"
#include "executor/sim/sim_memory.h"
#include "executor/virtual/virtual_machine.h"

namespace moeplan::executor {

class SimMachine final : public VirtualMachine {
 public:
  // `network` is borrowed. `data`: whether memory holds what a GPU's would.
  SimMachine(Network& network, bool data)
      : network_(network), memory_(Gpus(network.cluster()), network.cluster().gpu.device_memory_bytes, data) {}

  Agenda& agenda() override { return network_; }
  void Work(int rank, const QueuedTask& task, Agenda::Action done) override;
  void Operate(const GroupWork& work, Agenda::Action done) override;
  StatusOr<DeviceMemory> Allocate(int rank, size_t bytes) override { return memory_.Allocate(rank, bytes); }
  bool HoldsData(const std::byte* place) const override { return memory_.HoldsData(place); }
  void SetHoldsData(const std::byte* place) override { memory_.SetHoldsData(place); }

 private:
  struct Sends {
    std::vector<Traffic> transfers;
    std::optional<double> latency_s;  // As Network::Exchange's.
  };
  Sends SendsOf(const GroupWork& work) const;
  Sends AroundRing(const std::vector<int>& ranks, double part_bytes, int rounds) const;
  double BarrierS(const std::vector<int>& ranks) const;

  Network& network_;
  SimMemory memory_;
};

}  // namespace moeplan::executor
