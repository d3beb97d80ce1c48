// The seam between the runtime and the computation of an MoE layer, queued on streams.
//
// Tokens and slots are rows of M elements of one ElementType. Pointers are device memory that must live until the
// stream has passed. Numerics (design.md §5): accumulation in float; gate logits in a fixed order per row, ties to the
// lower expert; the slot of a (token, choice) pair is its place among the pairs of its expert in the gate's order.
#pragma once

#include <cstdint>
#include <span>

#include "executor/device.h"
#include "executor/layer/device_weights.h"
#include "executor/router_statistics.h"
#include "executor/rows.h"
#include "models/check.h"
#include "models/host_and_device.h"

namespace moeplan::executor {

// Of row i and choice c: [i * RoutingWidth(layer) + c]. A slot of -1 is a dropped pair, or, with EXPERT_CHOICE, where
// choice c is expert c, one that the expert did not take.
struct Routing {
  int32_t* expert = nullptr;
  int32_t* slot = nullptr;
  float* weight = nullptr;

  MOEPLAN_HD static size_t Bytes(size_t pairs) { return pairs * (2 * sizeof(int32_t) + sizeof(float)); }
  // How `pairs` of them lie in memory.
  MOEPLAN_HD static Routing At(std::byte* data, size_t pairs) {
    auto* experts = reinterpret_cast<int32_t*>(data);
    return {.expert = experts, .slot = experts + pairs, .weight = reinterpret_cast<float*>(experts + 2 * pairs)};
  }
};

// `blocks` source batches (or one slice) of `rows_per_block` rows, of which `valid_rows` hold tokens.
struct TokenRows {
  std::byte* data = nullptr;
  int blocks = 1;
  int rows_per_block = 0;
  int valid_rows = 0;
  int first_token = 0;  // The place of a slice's first row in its source batch.
};

// A part of a source batch learns from these counts what the parts before it took, and leaves its own to the next. They
// are in device memory, and null where a source batch is gated at once.
struct CarriedCounts {
  const int32_t* first_token = nullptr;  // The place of the part's first token in its source batch.
  const int32_t* earlier = nullptr;      // [blocks][E]: the pairs of earlier parts, dropped ones included.
  int32_t* now = nullptr;                // The same with the pairs of this part; overwritten.
  int slots = 0;                         // What each expert has for the whole source batch.

  // How many pairs of expert `i` = block · E + e may have slots, where the part's buffers have `capacity` of them.
  MOEPLAN_HD int RoomFor(int i, int capacity) const {
    if (earlier == nullptr) return capacity;
    const int left = earlier[i] < slots ? slots - earlier[i] : 0;
    return left < capacity ? left : capacity;
  }
  MOEPLAN_HD int FirstToken() const { return first_token == nullptr ? 0 : *first_token; }
};

struct GateArgs {
  TokenRows tokens;
  Routing routing;
  int capacity = 0;  // Pairs beyond it are dropped.
  CarriedCounts carried;
  int own_block = 0;
  // Of that block, overwritten.
  int32_t* counts = nullptr;  // By expert: its pairs, dropped ones included. Or null.
  RouterSums sums;
};

struct AssignSlotsArgs {
  const int32_t* all_counts = nullptr;  // [slices][experts]
  int slices = 1;
  int own_slice = 0;
  int capacity = 0;
  CarriedCounts carried;
  TokenRows tokens;
  Routing routing;
  int experts_per_rank = 1;
  ChunkUnits units;
  int32_t* send_counts = nullptr;  // [expert ranks][chunks][experts of a rank]
  RouterSums sums;                 // `kept` is overwritten.
};

// SplitByNodeOp of models/schedule/task_graph.h takes these. Experts lie on `nodes` nodes in equal parts and in their
// order.
struct SplitByNodeArgs {
  TokenRows tokens;
  Routing routing;
  int nodes = 1, experts_per_node = 1;
  // Overwritten: as wide as `routing`, in whose valid rows pairs that stand for no node have a slot of -1.
  Routing node_routing;
  int32_t* node_counts = nullptr;  // [nodes]
};

// RelayRoutingOp takes these. The slots of an expert that a rank has kept are numbers from 0 on without a gap.
struct RelayRoutingArgs {
  const std::byte* routings = nullptr;  // [nodes], each as Routing::At lays out rows_per_node rows.
  int nodes = 1, own_node = 0, experts_per_node = 1;
  int rows_per_node = 0, valid_rows = 0;
  int capacity = 0;  // No rank keeps more pairs of an expert.
  // Overwritten: of nodes · rows_per_node rows; those behind the rows that come have slots of -1.
  Routing routing;
  int32_t* row_counts = nullptr;   // [nodes]
  int32_t* pair_counts = nullptr;  // [experts_per_node]
};

struct SlotRows {
  std::byte* data = nullptr;
  CellLayout cells;
  SlotAddress address;
};

struct CombineArgs {
  SlotRows slots;
  Routing routing;
  TokenRows out;
  const std::byte* addend = nullptr;  // As many valid rows as `out`, or null.
};

struct ExpertInputGradientArgs {
  SlotRows out_gradient, in_gradient;
  // In the cells of out_gradient.
  const std::byte* hidden = nullptr;
  std::byte* hidden_gradient = nullptr;
  std::span<const std::vector<CellPair>> pairs;  // From out_gradient to in_gradient.
};

// All in the cells of `in`.
struct ExpertWeightGradientArgs {
  SlotRows in;
  const std::byte* hidden = nullptr;
  const std::byte* out_gradient = nullptr;
  const std::byte* hidden_gradient = nullptr;
  float scale = 1;
  bool is_first = true;                          // Of those of its backward pass.
  std::span<const std::vector<CellPair>> pairs;  // Of which `from` counts.
};

// Rows of tokens, one after the other.
struct SharedInputGradientArgs {
  TokenRows out_gradient;
  const std::byte* hidden = nullptr;
  std::byte* hidden_gradient = nullptr;
  std::byte* in_gradient = nullptr;
};
struct SharedWeightGradientArgs {
  TokenRows in;
  const std::byte* hidden = nullptr;
  const std::byte* out_gradient = nullptr;
  const std::byte* hidden_gradient = nullptr;
};

// Of the own block.
struct GateGradientArgs {
  TokenRows tokens;
  Routing routing;
  // The weights' gradients; null where weights multiply what experts get: they then follow from tokens and their
  // gradient.
  const float* routing_gradient = nullptr;
  const std::byte* tokens_gradient = nullptr;
  const std::byte* shared_gradient = nullptr;  // Or null.
  std::byte* in_gradient = nullptr;
  float* gate_gradient = nullptr;  // GateGradientValues of them.
  // For the router's losses: of the whole source batch, which may be more than `tokens`.
  int batch_tokens = 0;
  std::span<const int32_t> pair_counts;  // [slices][E]; empty where the load-balance loss does not count.
};

class Kernels {
 public:
  virtual ~Kernels() = default;

  // Whether Encode and Decode know the codec here; kUnimplemented, saying what to use instead.
  virtual Status CheckCodec(Codec codec) const = 0;

  // Tells kernels made with the host's memory where weights and gradients lie from now on, in the same shapes as
  // before. Nothing that is queued may still need the old ones. A view that is empty throughout keeps what was.
  virtual void UseHostMemory(const LayerWeightsView& /*weights*/, const LayerGradientsView& /*gradients*/) {}
  // The same of kernels that were made with the device's memory. Work that has been recorded still names the old one.
  virtual void UseDeviceMemory(const DeviceWeights& /*weights*/) {}
  virtual void UseDeviceMemory(const DeviceGradients& /*gradients*/) {}
  // Adds to[i] += from[i] for `count` values, both in memory that the kernels use in place.
  virtual void AddValues(const float* from, int64_t count, float* to, Stream& stream) = 0;
  // For kernels of the host's memory: what is queued after this, on streams that wait for `stream`, runs with
  // the weights that these hold when `stream` gets here; without it, with none.
  virtual void TakeWeights(Stream& /*stream*/) {}
  // The host's gradients have what weight gradients added up, once `stream` has passed.
  virtual void GiveGradients(Stream& /*stream*/) {}

  virtual void Gate(const GateArgs& args, Stream& stream) = 0;
  virtual void AssignSlots(const AssignSlotsArgs& args, Stream& stream) = 0;
  // Slots without a token become zero.
  virtual void Dispatch(const TokenRows& tokens, const Routing& routing, const SlotRows& out, Stream& stream) = 0;
  // Rows to their codes, which lie in the same cells, and back.
  virtual void Encode(Codec codec, const SlotRows& in, std::byte* out, Stream& stream) = 0;
  virtual void Decode(Codec codec, const std::byte* in, const SlotRows& out, Stream& stream) = 0;
  virtual void CopyCells(const SlotRows& in, const SlotRows& out, std::span<const CellPair> pairs, Stream& stream) = 0;
  // pairs[e]: the cells of local expert e. Overwrites `out`. `hidden`, unless null, gets the values before the
  // nonlinearity: rows in the cells of `in`, of the shard's hidden columns of "up" and, for SwiGLU, of "gate_up".
  virtual void Expert(const SlotRows& in, const SlotRows& out, std::byte* hidden,
                      std::span<const std::vector<CellPair>> pairs, Stream& stream) = 0;
  // Every valid row of `in` through the shared expert. Overwrites `out`; `hidden` as above.
  virtual void SharedExpert(const TokenRows& in, const TokenRows& out, std::byte* hidden, Stream& stream) = 0;
  // out[pair.to] = the sum of all in[pair.from], in the order of `pairs`, which are grouped by `to`.
  virtual void SumCells(const SlotRows& in, const SlotRows& out, std::span<const CellPair> pairs, Stream& stream) = 0;
  virtual void Combine(const CombineArgs& args, Stream& stream) = 0;

  // ---- Backward: the mirrors, as the ops of models/schedule/task_graph.h say.
  virtual void CombineGradient(const TokenRows& out_gradient, const Routing& routing, const SlotRows& slots_gradient,
                               Stream& stream) = 0;
  // gradient[i * RoutingWidth(layer) + c] for row i and choice c of the own block.
  virtual void RoutingGradient(const TokenRows& out_gradient, const SlotRows& slots, const Routing& routing,
                               float* gradient, Stream& stream) = 0;
  virtual void ExpertInputGradient(const ExpertInputGradientArgs& args, Stream& stream) = 0;
  virtual void SharedInputGradient(const SharedInputGradientArgs& args, Stream& stream) = 0;
  // These two add to the weight gradients that the kernels were made with; see GiveGradients.
  virtual void ExpertWeightGradient(const ExpertWeightGradientArgs& args, Stream& stream) = 0;
  virtual void SharedWeightGradient(const SharedWeightGradientArgs& args, Stream& stream) = 0;
  virtual void DispatchGradient(const SlotRows& slots_gradient, const Routing& routing,
                                const TokenRows& tokens_gradient, Stream& stream) = 0;
  virtual void GateGradient(const GateGradientArgs& args, Stream& stream) = 0;

  // ---- Where each token goes once to a node.
  virtual void SplitByNode(const SplitByNodeArgs& args, Stream& stream) = 0;
  virtual void RelayRouting(const RelayRoutingArgs& args, Stream& stream) = 0;
  // gradient[i * RoutingWidth(layer) + c] = the sum over the nodes of row i of what they sent back, rows of
  // RoutingWidth(layer) floats in the cells of `rows`.
  virtual void SumOverNodes(const SlotRows& rows, const Routing& node_routing, const TokenRows& tokens, float* gradient,
                            Stream& stream) = 0;
};

}  // namespace moeplan::executor
