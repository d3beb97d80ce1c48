// What distinguishes one schedule of a layer from another: its family, and how it cuts, carries and encodes what it
// exchanges.
//
// Values only; a schedule's graph is models/schedule/schedules.h.
#pragma once

#include <string_view>
#include <vector>

#include "models/cost/collective.h"
#include "models/own_names.h"
#include "models/workload/workload.h"

namespace moeplan {

// Registered schedules follow the built-in ones (models/extension/extension.h).
enum class Family {
  kBaseline,    // DeepSpeed-MoE as Parm §II describes it.
  kBaselineTp,  // ESP = MP without the all-gather, MoNTA's baseline.
  kParmS1,
  kParmS2,
  kMontaO1,
  kMontaO2,
  kMontaO3,
  kPipeline,
  kOncePerNode,  // DeepEP's way between nodes: a token leaves once for each node that has any of its experts.
};
template <>
inline constexpr int kBuiltIn<Family> = 9;
std::string_view Name(Family family);

// One candidate: two that agree in all of these are the same plan.
struct Knobs {
  Family family = Family::kBaseline;
  int chunks = 1;            // N
  int partition_degree = 1;  // r
  AllToAllAlgorithm all_to_all = AllToAllAlgorithm::kDirect;
  Codec dispatch_codec = Codec::kNone;
  Codec combine_codec = Codec::kNone;
  bool overlapped_gather = false;    // S2: SAA rather than AAS.
  std::vector<double> chunk_shares;  // Empty: equal.
  int communication_ctas = 0;        // The most that any of its collectives may use; 0: the library's own choice.

  friend bool operator==(const Knobs&, const Knobs&) = default;
};

}  // namespace moeplan
