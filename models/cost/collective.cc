#include "models/cost/collective.h"

#include "models/text.h"

namespace moeplan {

std::string_view Name(Collective collective) {
  switch (collective) {
    case Collective::kAllToAll: return "ALL_TO_ALL";
    case Collective::kAllGather: return "ALL_GATHER";
    case Collective::kReduceScatter: return "REDUCE_SCATTER";
    case Collective::kAllReduce: return "ALL_REDUCE";
    case Collective::kAllToAllAllGather: return "ALL_TO_ALL_ALL_GATHER";
  }
  return "?";
}

std::string_view Name(AllToAllAlgorithm algorithm) {
  switch (algorithm) {
    case AllToAllAlgorithm::kDirect: return "DIRECT";
    case AllToAllAlgorithm::kHier1d: return "HIER_1D";
    case AllToAllAlgorithm::kHier2d: return "HIER_2D";
    case AllToAllAlgorithm::kPipe: return "PIPE";
  }
  return OwnNames<AllToAllAlgorithm>::NameOf(algorithm);
}

std::string_view Name(Dispatcher dispatcher) {
  switch (dispatcher) {
    case Dispatcher::kAllToAll: return "ALL_TO_ALL";
    case Dispatcher::kAllGather: return "ALL_GATHER";
    case Dispatcher::kDeepEp: return "DEEPEP";
    case Dispatcher::kHybridEp: return "HYBRID_EP";
  }
  return "?";
}

std::string_view Name(Transport transport) {
  switch (transport) {
    case Transport::kNccl: return "NCCL";
    case Transport::kNvshmem: return "NVSHMEM";
    case Transport::kUccl: return "UCCL";
  }
  return "?";
}

double BusFactor(Collective collective, int group_size) {
  const double share = (group_size - 1.0) / group_size;
  return collective == Collective::kAllReduce ? 2 * share : share;
}

Status ValidateCtas(int ctas, const std::string& path) {
  if (0 <= ctas && ctas <= kMostCtas) return OkStatus();
  return InvalidInput(StrCat(path, ": found ", ctas, ", expected 0 to ", kMostCtas));
}

}  // namespace moeplan
