#include "planner/rules/parm.h"

#include "planner/rules/rule_costs.h"

namespace moeplan {
namespace {

// The letters of Parm §IV. Line 2 of Algorithm 1 prints T with a stray factor M; equation 13 drops N_ESP from y.
struct Letters {
  double N_MP, N_ESP;
  double x;    // B·L·M·bpe
  double y;    // E·T·M·N_ESP·bpe = k·f·x·N_ESP
  double etm;  // E·T·M·bpe
};

Letters LettersOf(const Workload& workload) {
  const LayerSizes sizes = SizesOf(workload.layer, workload.layout);
  const double shards = workload.layout.expert_sharding_parallel;
  return {.N_MP = static_cast<double>(workload.layout.tensor_parallel),
          .N_ESP = shards,
          .x = sizes.input_bytes,
          .y = sizes.dispatched_bytes * shards,
          .etm = sizes.dispatched_bytes};
}

// Equation 1.
double TimeOfBaseline(const Letters& l, RuleCosts& costs) {
  return costs.TimeS(Collective::kAllGather, Group::kShard, l.N_ESP * l.x) +
         costs.TimeS(Collective::kAllReduce, Group::kShard, l.y) +
         2 * costs.TimeS(Collective::kAllToAll, Group::kExpert, l.y);
}

// Equation 11.
double TimeOfS1(const Letters& l, RuleCosts& costs) {
  return 2 * costs.TimeS(Collective::kAllToAll, Group::kExpertShard, l.y / l.N_MP) +
         costs.TimeS(Collective::kAllGather, Group::kTensor, l.x);
}

// Whether the second all-to-all and the gather are one measured operation. Without tensor parallelism there is nothing
// to gather, and with one expert rank nothing to exchange: then the two terms apart are already exact.
bool OverlapMeasured(const Letters& l, const RuleCosts& costs, const Workload& workload) {
  return l.N_MP > 1 && GroupSize(Group::kExpertShard, workload.layout) > 1 &&
         costs.Has(Collective::kAllToAllAllGather, Group::kExpertShard);
}

// Equation 7: its Overlap is SAA, fitted as one operation on the payload y/N_MP. That settles line 5 of Algorithm 1,
// which leaves y undivided, and equation 14, which adds a gather that Overlap already contains. Unmeasured, the bound
// of equation 7 stands in: the same two collectives one after the other.
double TimeOfS2(const Letters& l, RuleCosts& costs, const Workload& workload) {
  const double all_to_all_s = costs.TimeS(Collective::kAllToAll, Group::kExpertShard, l.y / l.N_MP);
  if (OverlapMeasured(l, costs, workload)) {
    return all_to_all_s + costs.TimeS(Collective::kAllToAllAllGather, Group::kExpertShard, l.y / l.N_MP);
  }
  return 2 * all_to_all_s + costs.TimeS(Collective::kAllGather, Group::kTensor, l.etm);
}

}  // namespace

StatusOr<ParmAnswer> ParmRule(const Workload& workload, const Profile& profile, PriceNotes& notes) {
  RuleCosts costs(workload, profile);
  const Letters letters = LettersOf(workload);
  ParmAnswer answer;
  answer.t_baseline_s = TimeOfBaseline(letters, costs);
  answer.t_s1_s = TimeOfS1(letters, costs);
  answer.t_s2_s = TimeOfS2(letters, costs, workload);
  RETURN_IF_ERROR(costs.Missing());
  answer.choice = answer.t_s1_s <= answer.t_s2_s ? Family::kParmS1 : Family::kParmS2;
  notes.Merge(costs.notes());
  return answer;
}

}  // namespace moeplan
