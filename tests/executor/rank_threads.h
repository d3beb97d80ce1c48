// Ranks as threads: runs a function on every rank of a small job with its own host device and communicator.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "executor/host/host_kernels.h"
#include "executor/host/host_rank.h"

namespace moeplan::testing {

struct Rank {
  int rank;
  executor::Device& device;
  executor::Communicator& world;
  executor::KernelsFactory make_kernels = executor::MakeHostKernels;
};

// Makes the mesh of a rank, on the rank's thread.
using MakeMesh = std::function<std::unique_ptr<executor::Mesh>(int rank)>;

// Returns when every rank has. A rank whose device fails aborts the others.
inline void RunHostRanks(int ranks, const MakeMesh& make_mesh, const std::function<void(executor::HostRank&)>& body,
                         double deadline_s = 20) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      executor::HostRank host(make_mesh(rank), deadline_s);
      body(host);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline void RunRanks(int ranks, const MakeMesh& make_mesh, const std::function<void(Rank)>& body,
                     double deadline_s = 20) {
  const auto as_rank = [&](executor::HostRank& host) { body({host.world().rank(), host.device(), host.world()}); };
  RunHostRanks(ranks, make_mesh, as_rank, deadline_s);
}

// The same over in-process meshes.
inline void RunRanks(int ranks, const std::function<void(Rank)>& body, double deadline_s = 20) {
  std::vector<std::unique_ptr<executor::Mesh>> meshes = executor::MakeInProcessMeshes(ranks);
  RunRanks(
      ranks, [&](int rank) { return std::move(meshes[rank]); }, body, deadline_s);
}

}  // namespace moeplan::testing
