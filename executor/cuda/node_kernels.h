// Routes of tokens that go once to each node (executor/kernels.h: SplitByNode, RelayRouting, SumOverNodes), as kernels
// on a CUDA stream.
//
// All pointers are device memory that must live until the stream has passed. Rows keep the order of their tokens, so
// that results have the bits of the host kernels; the slots of a relay's pairs are in the order of the slots that the
// gates gave. Nothing here waits for the device. The status is that of launches.
#pragma once

#include <cuda_runtime_api.h>

#include "executor/cuda/row_kernels.h"

namespace moeplan::executor::cuda {

// Memory that the kernels of one call pass to each other.
struct NodeScratch {
  int32_t* block_counts = nullptr;  // [nodes][blocks of a list]
  int32_t* list_counts = nullptr;   // [nodes]
  int32_t* pair_counts = nullptr;   // [nodes][experts_per_node]: of a relay alone.

  static size_t Bytes(int nodes, int rows, int experts);
  static NodeScratch At(std::byte* data, int nodes, int rows, int experts);
};

Status SplitByNode(int choices, const SplitByNodeArgs& args, const NodeScratch& scratch, cudaStream_t stream);
Status RelayRouting(int choices, const RelayRoutingArgs& args, const NodeScratch& scratch, cudaStream_t stream);
// `rows`: as FindPlaces found them for node_routing; their slots are rows of `choices` floats.
Status SumOverNodes(const RoutedPairs& pairs, const int32_t* places, const std::byte* rows, float* gradient,
                    cudaStream_t stream);

}  // namespace moeplan::executor::cuda
