// Which degrees of a layout must divide which numbers of a model and a cluster, each rule once: the enumeration
// (layout_space.h) asks whether it holds, a given layout is told which one it breaks.
//
// Ranks of a pipeline stage lie as [TP, CP, DP] for dense layers and as [ESP, EP, replicas] for experts. Pure.
#pragma once

#include "models/cost/profile.h"
#include "models/layout/layout_answer.h"
#include "models/status.h"

namespace moeplan::planner {

// kInvalidInput names the field, kUnimplemented a model with an encoder. `measured` is the profile's cluster.
Status CheckLayoutRequest(const LayoutRequest& request, const Cluster& measured);

// The part of it about what is computed again, and what is predicted beyond the next token.
Status CheckKept(const LayoutRequest& request);

// kInvalidInput: the profile's hardware has no products of the request's precision.
Status CheckPrecision(const LayoutRequest& request, const Profile& profile);

// The cluster of the request's GPUs: nodes such as the profile's, or a part of one. Requires a checked request.
Cluster ClusterOf(const LayoutRequest& request, const Cluster& measured);

class LayoutRules {
 public:
  // Of a checked request on a cluster that has its GPUs. Both are borrowed.
  LayoutRules(const LayoutRequest& request, const Cluster& cluster) : request_(request), cluster_(cluster) {}

  // PP divides the GPUs, and every virtual stage has a layer or as many as the request says. Virtual stages need PP,
  // and exchanges of experts beside another micro-batch need them with PP.
  bool PipelineDivides(int pipeline) const;
  // Interleaved stages take micro-batches by as many as there are stages.
  bool MicroBatchesDivide(int micro_batches, int pipeline) const;
  // TP divides the GPUs of a node and the ranks of a stage, the heads, the model dimension and the hidden dimensions of
  // networks without experts and of shared experts.
  bool TensorDivides(int tensor, int stage_ranks) const;
  // 2·CP divides the sequence, so that causal work can be shared evenly, and with sequence parallelism TP the rest.
  bool ContextsDivide(int contexts, int tensor) const;
  // DP divides the global batch.
  bool DataDivides(int data) const { return request_.global_batch % data == 0; }
  // ESP divides the GPUs of a node and the hidden dimension of an expert; with a dispatcher it is 1.
  bool ShardingDivides(int sharding) const;
  // EP divides the experts, and is above 1 where their exchanges run beside another micro-batch; EP·ESP divides the
  // ranks of a stage, and divides or is a multiple of those of a node.
  bool ExpertsDivide(int experts, int sharding, int stage_ranks) const;

  // kInvalidInput: the layout (with every degree but, where it is 0, DP) or the micro-batch breaks a rule, which the
  // message names with what was found and what was expected.
  Status Check(const Layout& layout, int micro_batch) const;

 private:
  bool OverlapsIn(int pipeline) const;

  const LayoutRequest& request_;
  const Cluster& cluster_;
};

}  // namespace moeplan::planner
