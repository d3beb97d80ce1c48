#include "executor/sim/sim_machine.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace moeplan::executor {
namespace {

std::vector<int> RanksOf(const GroupWork& work) {
  std::vector<int> ranks;
  for (const GroupWork::Member& member : work.members) ranks.push_back(member.rank);
  return ranks;
}

std::vector<Traffic> TransfersOf(const GroupWork& work) {
  std::vector<Traffic> transfers;
  for (const GroupWork::Member& member : work.members) {
    for (const Part& send : member.sends) {
      transfers.push_back({member.rank, work.members[send.peer].rank, work.share * send.bytes.size()});
    }
    for (const BytesTo& send : member.beside) transfers.push_back({member.rank, send.rank, send.bytes});
  }
  return transfers;
}

// What the first member sends to one other.
double PartBytes(const GroupWork& work) { return static_cast<double>(work.members[0].sends[0].bytes.size()); }

}  // namespace

void SimMachine::Work(int rank, const QueuedTask& task, Agenda::Action done) {
  const WorkSize size = task.size ? task.size() : WorkSize{.launches = 0};
  if (size.launches == 0 && size.compute_s == 0 && size.memory_bytes == 0) return done();
  network_.After(size.launches * network_.cluster().gpu.launch_s, [this, rank, size, done = std::move(done)]() mutable {
    network_.Work(rank, {.compute_s = size.compute_s, .memory_bytes = size.memory_bytes}, std::move(done));
  });
}

void SimMachine::Operate(const GroupWork& work, Agenda::Action done) {
  const double launch_s = network_.cluster().gpu.launch_s;
  if (work.operation == GroupOperation::kBarrier) {
    return network_.After(launch_s + BarrierS(RanksOf(work)), std::move(done));
  }
  network_.After(launch_s, [this, sends = SendsOf(work), done = std::move(done)]() mutable {
    network_.Exchange(sends.transfers, sends.latency_s, std::move(done));
  });
}

SimMachine::Sends SimMachine::SendsOf(const GroupWork& work) const {
  switch (work.operation) {
    case GroupOperation::kAllGather:
    case GroupOperation::kReduceScatter: return AroundRing(RanksOf(work), PartBytes(work), /*rounds=*/1);
    case GroupOperation::kAllReduce:
      return AroundRing(RanksOf(work), PartBytes(work) / work.members.size(), /*rounds=*/2);
    default: return {.transfers = TransfersOf(work)};
  }
}

SimMachine::Sends SimMachine::AroundRing(const std::vector<int>& ranks, double part_bytes, int rounds) const {
  const size_t size = ranks.size();
  if (size == 1) return {.transfers = {{ranks[0], ranks[0], part_bytes}}};
  Sends sends;
  double all_s = 0, least_s = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < size; ++i) {
    const int from = ranks[i], to = ranks[(i + 1) % size];
    sends.transfers.push_back({from, to, rounds * (size - 1) * part_bytes});
    all_s += network_.LatencyS(from, to);
    least_s = std::min(least_s, network_.LatencyS(from, to));
  }
  sends.latency_s = rounds * (all_s - least_s);
  return sends;
}

double SimMachine::BarrierS(const std::vector<int>& ranks) const {
  double longest_s = 0;
  for (const int rank : ranks) longest_s = std::max(longest_s, network_.LatencyS(ranks[0], rank));
  return std::bit_width(ranks.size() - 1) * longest_s;
}

}  // namespace moeplan::executor
