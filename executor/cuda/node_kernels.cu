#include "executor/cuda/node_kernels.h"

#include <algorithm>

#include "executor/cuda/errors.h"
#include "executor/cuda/launch.h"
#include "executor/cuda/scan.cuh"
#include "executor/cuda/start.cuh"

namespace moeplan::executor::cuda {
namespace {

// The kernels below are about lists of rows, each of which keeps some. A thread looks at a row; blocks x lie over the
// rows of a list, y over lists.
int BlocksOf(int rows) { return (rows + kThreads - 1) / kThreads; }

__device__ bool HasPairOn(const Routing& routing, int64_t first, int choices, int first_expert, int experts) {
  for (int64_t pair = first; pair < first + choices; ++pair) {
    const int expert = routing.expert[pair] - first_expert;
    if (routing.slot[pair] >= 0 && expert >= 0 && expert < experts) return true;
  }
  return false;
}

// The rows of a list that are for a node: list i of node i's rows.
struct Split {
  SplitByNodeArgs args;
  int choices = 1;

  __device__ int rows() const { return args.tokens.valid_rows; }
  __device__ bool Keeps(int list, int row) const { return IsFor(list, row); }
  __device__ bool IsFor(int node, int row) const {
    return HasPairOn(args.routing, static_cast<int64_t>(row) * choices, choices, node * args.experts_per_node,
                     args.experts_per_node);
  }
};

// The rows of the rank of the own place on node i, those that are for the own node.
struct Relay {
  RelayRoutingArgs args;
  int choices = 1;

  __device__ int rows() const { return args.valid_rows; }
  __device__ int first_expert() const { return args.own_node * args.experts_per_node; }
  __device__ Routing Of(int list) const {
    const size_t pairs = static_cast<size_t>(args.rows_per_node) * choices;
    return Routing::At(const_cast<std::byte*>(args.routings) + list * Routing::Bytes(pairs), pairs);
  }
  __device__ bool Keeps(int list, int row) const {
    return HasPairOn(Of(list), static_cast<int64_t>(row) * choices, choices, first_expert(), args.experts_per_node);
  }
};

template <typename Lists>
__global__ void CountKeptKernel(const __grid_constant__ Lists lists, NodeScratch scratch) {
  const int list = static_cast<int>(blockIdx.y), row = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int32_t kept = row < lists.rows() && lists.Keeps(list, row) ? 1 : 0;
  const int32_t all = SumUpToHere(kept).all;
  if (threadIdx.x == 0) scratch.block_counts[list * gridDim.x + blockIdx.x] = all;
}

// A block for each list: counts of thread blocks become how many rows came before them.
__global__ void SumBlocksKernel(int blocks, NodeScratch scratch, int32_t* list_counts) {
  int32_t* const counts = scratch.block_counts + static_cast<int64_t>(blockIdx.x) * blocks;
  int32_t before = 0;
  for (int first = 0; first < blocks; first += kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const int32_t own = i < blocks ? counts[i] : 0;
    const RunningSum<int32_t> sum = SumUpToHere(own);
    if (i < blocks) counts[i] = before + sum.up_to_here - own;
    before += sum.all;
    __syncthreads();
  }
  if (threadIdx.x == 0) scratch.list_counts[blockIdx.x] = list_counts[blockIdx.x] = before;
}

// Calls put(place among those that the list keeps) for the thread's row, if it is kept.
template <typename Lists, typename Put>
__device__ void PlaceKept(const Lists& lists, const NodeScratch& scratch, int list, int row, Put put) {
  const int32_t kept = row < lists.rows() && lists.Keeps(list, row) ? 1 : 0;
  const int32_t up_to_here = SumUpToHere(kept).up_to_here;
  if (kept == 1) put(scratch.block_counts[list * gridDim.x + blockIdx.x] + up_to_here - 1);
}

__device__ void SetPair(const Routing& routing, int64_t pair, int expert, int slot, float weight) {
  routing.expert[pair] = expert;
  routing.slot[pair] = slot;
  routing.weight[pair] = weight;
}

__global__ void SplitKernel(const __grid_constant__ Split split, NodeScratch scratch) {
  const int node = static_cast<int>(blockIdx.y), row = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int64_t first = static_cast<int64_t>(row) * split.choices;
  const auto nodes_before = [&](int end) {
    int nodes = 0;
    for (int other = 0; other < end; ++other) nodes += split.IsFor(other, row) ? 1 : 0;
    return nodes;
  };
  PlaceKept(split, scratch, node, row,
            [&](int32_t place) { SetPair(split.args.node_routing, first + nodes_before(node), node, place, 1); });
  if (node != 0 || row >= split.rows()) return;
  for (int choice = nodes_before(split.args.nodes); choice < split.choices; ++choice) {
    SetPair(split.args.node_routing, first + choice, 0, -1, 0);
  }
}

__global__ void ClearKernel(int32_t* values, int64_t count, int32_t to) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) values[i] = to;
}

// How many pairs of each expert each list has: the last slot's number and one.
__global__ void CountPairsKernel(const __grid_constant__ Relay relay, NodeScratch scratch) {
  const int list = static_cast<int>(blockIdx.y);
  const Routing routing = relay.Of(list);
  int32_t* const counts = scratch.pair_counts + list * relay.args.experts_per_node;
  const int64_t pairs = static_cast<int64_t>(relay.rows()) * relay.choices,
                stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t pair = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; pair < pairs; pair += stride) {
    const int expert = routing.expert[pair] - relay.first_expert();
    if (routing.slot[pair] < 0 || expert < 0 || expert >= relay.args.experts_per_node) continue;
    atomicMax(&counts[expert], routing.slot[pair] + 1);
  }
}

// Counts of lists become how many pairs of an expert came before them.
__global__ void SumPairsKernel(const __grid_constant__ Relay relay, NodeScratch scratch) {
  const int expert = static_cast<int>(blockIdx.x * kThreads + threadIdx.x), experts = relay.args.experts_per_node;
  if (expert >= experts) return;
  int32_t before = 0;
  for (int list = 0; list < relay.args.nodes; ++list) {
    int32_t& count = scratch.pair_counts[list * experts + expert];
    const int32_t own = count;
    count = before;
    before += own;
  }
  relay.args.pair_counts[expert] = before;
}

__global__ void RelayKernel(const __grid_constant__ Relay relay, NodeScratch scratch) {
  const int list = static_cast<int>(blockIdx.y), row = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int experts = relay.args.experts_per_node;
  int64_t before = 0;
  for (int other = 0; other < list; ++other) before += scratch.list_counts[other];
  PlaceKept(relay, scratch, list, row, [&](int32_t place) {
    const Routing from = relay.Of(list);
    for (int choice = 0; choice < relay.choices; ++choice) {
      const int64_t pair = static_cast<int64_t>(row) * relay.choices + choice;
      const int expert = from.expert[pair] - relay.first_expert();
      const bool here = from.slot[pair] >= 0 && expert >= 0 && expert < experts;
      SetPair(relay.args.routing, (before + place) * relay.choices + choice, here ? expert : 0,
              here ? scratch.pair_counts[list * experts + expert] + from.slot[pair] : -1, here ? from.weight[pair] : 0);
    }
  });
}

// A thread for each value of the gradient: float sums in the order of a token's nodes.
__global__ void SumOverNodesKernel(const __grid_constant__ RoutedPairs pairs, const int32_t* places, const float* rows,
                                   float* gradient) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < pairs.Pairs(); i += stride) {
    const int64_t first = i / pairs.choices * pairs.choices;
    float sum = 0;
    for (int node = 0; node < pairs.choices; ++node) {
      const int64_t place = places[first + node];
      if (place >= 0) sum += rows[place * pairs.choices + (i - first)];
    }
    gradient[i] = sum;
  }
}

template <typename Lists>
void StartCounts(const Lists& lists, int rows, int nodes, const NodeScratch& scratch, int32_t* list_counts,
                 cudaStream_t stream) {
  const int blocks = BlocksOf(rows);
  if (blocks > 0) Start(CountKeptKernel<Lists>, {dim3(blocks, nodes), kThreads}, stream, lists, scratch);
  Start(SumBlocksKernel, {dim3(nodes), kThreads}, stream, blocks, scratch, list_counts);
}

void Clear(int32_t* values, int64_t count, int32_t to, cudaStream_t stream) {
  if (count > 0) Start(ClearKernel, {dim3(LaunchOfRows(count, 1).blocks), kThreads}, stream, values, count, to);
}

Status CheckNodes(int nodes) {
  if (nodes <= kMaxGridY) return OkStatus();
  return InvalidInput(StrCat("nodes: found ", nodes, ", more than a grid of a kernel has room for"));
}

}  // namespace

size_t NodeScratch::Bytes(int nodes, int rows, int experts) {
  return sizeof(int32_t) * nodes * (static_cast<size_t>(BlocksOf(rows)) + 1 + experts);
}

NodeScratch NodeScratch::At(std::byte* data, int nodes, int rows, int /*experts*/) {
  auto* const counts = reinterpret_cast<int32_t*>(data);
  int32_t* const lists = counts + static_cast<size_t>(nodes) * BlocksOf(rows);
  return {.block_counts = counts, .list_counts = lists, .pair_counts = lists + nodes};
}

Status SplitByNode(int choices, const SplitByNodeArgs& args, const NodeScratch& scratch, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckNodes(args.nodes));
  const Split split = {.args = args, .choices = choices};
  const int rows = args.tokens.valid_rows;
  StartCounts(split, rows, args.nodes, scratch, args.node_counts, stream);
  if (rows > 0) Start(SplitKernel, {dim3(BlocksOf(rows), args.nodes), kThreads}, stream, split, scratch);
  return LaunchStatus("tokens by their nodes");
}

Status RelayRouting(int choices, const RelayRoutingArgs& args, const NodeScratch& scratch, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckNodes(args.nodes));
  const Relay relay = {.args = args, .choices = choices};
  const int rows = args.valid_rows;
  StartCounts(relay, rows, args.nodes, scratch, args.row_counts, stream);
  Clear(args.routing.slot, static_cast<int64_t>(args.nodes) * args.rows_per_node * choices, -1, stream);
  Clear(scratch.pair_counts, static_cast<int64_t>(args.nodes) * args.experts_per_node, 0, stream);
  if (rows > 0) {
    const auto blocks = LaunchOfRows(static_cast<int64_t>(rows) * choices, 1).blocks;
    Start(CountPairsKernel, {dim3(blocks, args.nodes), kThreads}, stream, relay, scratch);
  }
  Start(SumPairsKernel, {dim3(BlocksOf(args.experts_per_node)), kThreads}, stream, relay, scratch);
  if (rows > 0) Start(RelayKernel, {dim3(BlocksOf(rows), args.nodes), kThreads}, stream, relay, scratch);
  return LaunchStatus("the routing of a relay");
}

Status SumOverNodes(const RoutedPairs& pairs, const int32_t* places, const std::byte* rows, float* gradient,
                    cudaStream_t stream) {
  if (pairs.Pairs() == 0) return OkStatus();
  Start(SumOverNodesKernel, {dim3(LaunchOfRows(pairs.Pairs(), 1).blocks), kThreads}, stream, pairs, places,
        reinterpret_cast<const float*>(rows), gradient);
  return LaunchStatus("the sums over nodes");
}

}  // namespace moeplan::executor::cuda
