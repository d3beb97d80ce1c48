// What goes wrong while a layer runs, worded once.
#pragma once

#include "executor/device.h"
#include "models/status.h"
#include "models/text.h"
#include "models/workload/workload.h"

namespace moeplan::executor::error {

inline Status MissedDeadline(int peer, const std::string& task, double bytes) {
  return DeadlineExceeded(StrCat("rank ", peer, " did not answer in time: task ", task, ", ", bytes, " bytes"));
}

// Of a plan that is to become a runner.
inline Status CannotLimitCtas(int ctas) {
  return InvalidInput(StrCat("communicationCtas: found ", ctas,
                             ", expected 0, as the collectives of this backend have no ",
                             "CTAs to limit; take a candidate with communicationCtas 0"));
}

inline Status OtherTokens(int peer, const CallTokens& found, int own, const CallTokens& expected,
                          const std::string& task) {
  const bool of_call = found.call != expected.call;
  return InvalidInput(StrCat(of_call ? "tokens" : "tokens of the batch", ": found ", of_call ? found.call : found.batch,
                             " on rank ", peer, ", expected as many as on rank ", own, ", ",
                             of_call ? expected.call : expected.batch))
      .Within(StrCat("task ", task));
}

inline Status OtherSize(int peer, uint64_t found, uint64_t expected, const std::string& task) {
  return InternalError(StrCat("rank ", peer, " is about to send ", found, " bytes, expected ", expected))
      .Within(StrCat("task ", task));
}

inline Status LostPeer(int peer, const std::string& task, double bytes, const std::string& why) {
  return PeerLost(StrCat("rank ", peer, " is lost (", why, "): task ", task, ", ", bytes, " bytes"));
}

// ---- Of MoeLayer.
inline Status WrongRanks(int in_cluster, int in_job) {
  return InvalidInput(StrCat("cluster: nodes · gpusPerNode is ", in_cluster, ", but the job has ", in_job,
                             " ranks; make the layer from a plan for this cluster"));
}

inline Status WrongSize(const std::string& tensor, size_t found, size_t expected) {
  return InvalidInput(StrCat(tensor, ": found ", found, " values, expected ", expected, ", as MakeWeights and ",
                             "ZeroGradients give them"));
}

inline Status WrongShard(const std::string& weights) {
  return InvalidInput(StrCat(weights, ".shard: found another shard than ShardOf gives for this rank and layout"));
}

inline Status NoGradients() {
  return InvalidInput("gradients: found none, but the plan has a backward pass; give ZeroGradients(weights)");
}

inline Status WrongRows(const std::string& name, size_t found, size_t expected, const Layer& layer) {
  return InvalidInput(StrCat(name, ": found ", found, " bytes, expected ", expected, ": the tokens of a source batch, ",
                             layer.model_dim, " elements of ", layer.bytes_per_element, " bytes each"));
}

inline Status ForwardOnly() {
  return InvalidInput("Backward: the plan is for phase FORWARD; make the layer from one for TRAINING or BACKWARD");
}

inline Status WrongTokens(int found, int most) {
  return InvalidInput(StrCat("tokens: found ", found, ", expected 1 to ", most,
                             ", the layer's batch · sequenceLength / ", "contextParallel"));
}

inline Status TooManyPairs(int rank, int found, int most, double receive_factor, double even) {
  return InvalidInput(StrCat("layer.receiveFactor: found ", found, " rows of rank ", rank,
                             " for one expert, expected at most ", most, ", which is ", receive_factor,
                             " times an even share of ", even, "; raise it, or balance the router"));
}

inline Status NeedsSizes() {
  return Unimplemented(
      "layer.capacityFactor: found 0 (dropless), expected above 0: a MoeLayer has as many slots in each call; make a "
      "TrainingLayer, which counts pairs first");
}

inline Status NoDeviceKernels() {
  return Unimplemented(
      "weights: found memory of a device, expected the host's, which the kernels of this backend read");
}

// ---- Of a source batch in parts.
inline Status WrongPart(int found, int left) {
  return InvalidInput(StrCat("tokens: found ", found, " of a part, expected 1 to ", left,
                             ", those of the source batch that have not come yet"));
}

inline Status PartOfAnotherLayer() {
  return InvalidInput("batch: found one whose first part another layer ran; make one for each layer and source batch");
}

inline Status GateSeesTheWholeBatch(std::string_view gate) {
  return InvalidInput(StrCat("layer.gate: found ", gate,
                             ", expected TOP_K, SWITCH, RANDOM or HASH where a source batch ", "comes in parts, as ",
                             gate, " looks at the whole of it"));
}

inline Status PaddedParts() {
  return InvalidInput(
      "capacityPassing: found PADDED, expected EXACT where a source batch comes in parts, as PADDED gives slices fixed "
      "shares of the slots");
}

inline Status BackwardBeforeLastPart(int found, int tokens) {
  return InvalidInput(StrCat("tokens: found ", found, " of the source batch's ", tokens,
                             " when a part goes back, expected ",
                             "all of them, which the load-balance loss (layer.auxLossCoefficient) is about; run every ",
                             "part forward first"));
}

inline Status NoWeightGradients() {
  return InvalidInput("AddWeightGradients: no BackwardOfInput to add those of; call that first, once for each");
}

inline Status BackwardBeforeForward() {
  return InvalidInput("Backward: no Forward to go back through; call Forward first, once for each Backward");
}

}  // namespace moeplan::executor::error
