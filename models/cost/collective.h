// Names the collectives that schedules use, the algorithms that carry an all-to-all, and the dispatchers of training
// frameworks that stand in for one.
//
// Values only; any thread may call the functions.
#pragma once

#include <string_view>

#include "models/own_names.h"

namespace moeplan {

// kAllToAllAllGather is Parm's SAA: the second all-to-all with the gather over MP inside it.
enum class Collective { kAllToAll, kAllGather, kReduceScatter, kAllReduce, kAllToAllAllGather };
// Registered algorithms follow the built-in ones (models/extension/extension.h).
enum class AllToAllAlgorithm { kDirect, kHier1d, kHier2d, kPipe };
template <>
inline constexpr int kBuiltIn<AllToAllAlgorithm> = 4;

// How rows come to their experts and back: by an all-to-all, each rank sending each other what is for it; by an
// all-gather of all rows there and a reduce-scatter back; by DeepEP's or HybridEP's kernels, which send a row once to
// each node that needs it and spread it there.
enum class Dispatcher { kAllToAll, kAllGather, kDeepEp, kHybridEp };
// The library that carries the messages of DeepEP's and HybridEP's kernels between nodes.
enum class Transport { kNccl, kNvshmem, kUccl };

// Whether rows travel once to a node (DeepEP, HybridEP).
inline bool SendsOnceToANode(Dispatcher dispatcher) {
  return dispatcher == Dispatcher::kDeepEp || dispatcher == Dispatcher::kHybridEp;
}

// The names of the contract, such as "ALL_TO_ALL".
std::string_view Name(Collective collective);
std::string_view Name(AllToAllAlgorithm algorithm);
std::string_view Name(Dispatcher dispatcher);
std::string_view Name(Transport transport);

// φ(n) of design.md §3: the share of the `size` column that crosses a link of each rank.
double BusFactor(Collective collective, int group_size);

// The most CTAs (thread blocks, each of which takes an SM) that a library may be told to give to a collective: fewer
// slow the collective and leave more of the GPU to compute. 0 stands for the library's own choice.
inline constexpr int kMostCtas = 1024;

// kInvalidInput, at `path`, unless `ctas` is such a limit or 0.
Status ValidateCtas(int ctas, const std::string& path);

}  // namespace moeplan
