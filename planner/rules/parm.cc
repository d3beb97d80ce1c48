#include "planner/rules/parm.h"

#include <array>

#include "models/text.h"
#include "planner/rules/rule_costs.h"
#include "planner/ties.h"

namespace moeplan::planner {
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
  const double gather_s = costs.TimeS(Collective::kAllGather, Group::kShard, l.N_ESP * l.x, "AG_ESP(N_ESP·x)");
  const double reduce_s = costs.TimeS(Collective::kAllReduce, Group::kShard, l.y, "AR_ESP(y)");
  return gather_s + reduce_s + costs.TimesS(2, Collective::kAllToAll, Group::kExpert, l.y, "A2A_EP(y)");
}

// Equation 11.
double TimeOfS1(const Letters& l, RuleCosts& costs) {
  const double exchange_s =
      costs.TimesS(2, Collective::kAllToAll, Group::kExpertShard, l.y / l.N_MP, "A2A_EP&ESP(y/N_MP)");
  return exchange_s + costs.TimeS(Collective::kAllGather, Group::kTensor, l.x, "AG_MP(x)");
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
constexpr char kS2[] = "A2A_EP&ESP(y/N_MP) + SAA(y/N_MP)";
double TimeOfS2(const Letters& l, RuleCosts& costs) {
  const double exchange_s = costs.TimeS(Collective::kAllToAll, Group::kExpertShard, l.y / l.N_MP, "A2A_EP&ESP(y/N_MP)");
  return exchange_s + costs.TimeS(Collective::kAllToAllAllGather, Group::kExpertShard, l.y / l.N_MP, "SAA(y/N_MP)");
}
constexpr char kS2Apart[] = "2·A2A_EP&ESP(y/N_MP) + AG_MP(E·T·M·bpe)";
double TimeOfS2Apart(const Letters& l, RuleCosts& costs) {
  const double exchange_s =
      costs.TimesS(2, Collective::kAllToAll, Group::kExpertShard, l.y / l.N_MP, "A2A_EP&ESP(y/N_MP)");
  return exchange_s + costs.TimeS(Collective::kAllGather, Group::kTensor, l.etm, "AG_MP(E·T·M·bpe)");
}

void Define(const Letters& l, RuleCosts& costs) {
  costs.Define(StrCat("N_MP = ", l.N_MP));
  costs.Define(StrCat("N_ESP = ", l.N_ESP));
  costs.Define(StrCat("x = B·L·M·bpe = ", l.x, " bytes"));
  costs.Define(StrCat("E·T·M·bpe = k·f·x = ", l.etm, " bytes"));
  costs.Define(StrCat("y = E·T·M·N_ESP·bpe = ", l.y, " bytes"));
}

}  // namespace

StatusOr<ParmAnswer> ParmRule(const Workload& workload, const Profile& profile, PriceNotes& notes,
                              ExplainedRule* explained) {
  RuleCosts costs(workload, profile, explained);
  const Letters letters = LettersOf(workload);
  if (costs.explains()) Define(letters, costs);
  ParmAnswer answer;
  answer.t_baseline_s =
      costs.Named("t_B", "AG_ESP(N_ESP·x) + AR_ESP(y) + 2·A2A_EP(y)", [&] { return TimeOfBaseline(letters, costs); });
  answer.t_s1_s = costs.Named("t_S1", "2·A2A_EP&ESP(y/N_MP) + AG_MP(x)", [&] { return TimeOfS1(letters, costs); });
  const bool overlaps = OverlapMeasured(letters, costs, workload);
  answer.t_s2_s = costs.Named("t_S2", overlaps ? kS2 : kS2Apart,
                              [&] { return overlaps ? TimeOfS2(letters, costs) : TimeOfS2Apart(letters, costs); });
  RETURN_IF_ERROR(costs.Missing());
  const size_t choice = FirstOfSmallest(std::array{answer.t_s1_s, answer.t_s2_s});
  answer.choice = choice == 0 ? Family::kParmS1 : Family::kParmS2;
  costs.Choose(answer.choice == Family::kParmS1 ? "t_S1" : "t_S2");
  notes.Merge(costs.notes());
  return answer;
}

}  // namespace moeplan::planner
