#include "planner/rules/schemoe.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

#include "models/measurement/candidates.h"
#include "models/text.h"
#include "models/workload/codec.h"
#include "planner/rules/rule_costs.h"
#include "planner/ties.h"

namespace moeplan::planner {
namespace {

constexpr int kBudgetNodes = 1000000;

// The tasks of equation 3 for one chunk of r, those of codec NONE left out.
std::vector<ChunkStage> ChunkStages(const Workload& workload, int r, RuleCosts& costs) {
  const Layer& layer = workload.layer;
  const double S = SizesOf(layer, workload.layout).dispatched_bytes;
  const double flops = ExpertFlops(layer, /*shards=*/1, S / layer.bytes_per_element / layer.model_dim);
  std::vector<ChunkStage> stages;
  const auto compute = [&](const char* name, Kernel kernel, double size) {
    stages.push_back({name, Lane::kCompute, costs.KernelS(kernel, size, name)});
  };
  const auto exchange = [&](const char* compress, const char* all_to_all, const char* decompress, Codec codec) {
    if (codec != Codec::kNone) compute(compress, EncodeKernel(codec), S / r);
    const double sent = S / r * CompressionRatio(codec, layer.model_dim, layer.bytes_per_element);
    stages.push_back(
        {all_to_all, Lane::kCommunication, costs.TimeS(Collective::kAllToAll, Group::kExpert, sent, all_to_all)});
    if (codec != Codec::kNone) compute(decompress, DecodeKernel(codec), S / r);
  };
  exchange("C1", "A1", "D1", workload.dispatch_codec);
  compute("E", Kernel::kExpertGemm, flops / r);
  exchange("C2", "A2", "D2", workload.combine_codec);
  return stages;
}

// All tasks by start time, compute first on ties.
std::vector<std::string> NamesByStart(std::span<const ChunkStage> stages, int chunks, const StageOrder& order) {
  const std::vector<double> start_s = PlayStages(ChainOf(stages, chunks), order).start_s;
  std::vector<int> by_start(order.size());
  std::iota(by_start.begin(), by_start.end(), 0);
  std::ranges::stable_sort(by_start, {}, [&](int i) { return std::tuple(start_s[i], stages[order[i].stage].lane); });
  std::vector<std::string> names;
  for (const int i : by_start) names.push_back(StrCat(stages[order[i].stage].name, ".", order[i].index + 1));
  return names;
}

std::string UnfinishedRemark(const SchemoeAnswer& answer, const StageOrderOutcome& search) {
  return StrCat("rule schemoe: optimalTimeS is the best of ", search.nodes,
                " partial orders at r = ", answer.partition_degree, "; no order is below ", search.time_floor_s, " s");
}

// The tasks and the ends of both orders, which are no sums.
void Explain(const Workload& workload, const SchemoeAnswer& answer, RuleCosts& costs) {
  const int r = answer.partition_degree;
  const Layer& layer = workload.layer;
  const double S = SizesOf(layer, workload.layout).dispatched_bytes;
  costs.Define(StrCat("r = ", r, ", of the smallest OptSche time"));
  costs.Define(StrCat("S = k·f·B·L·M·bpe = ", S, " bytes"));
  costs.Define("A1, A2 = A2A_EP(S/r × the codec's ratio); E = the experts on 1/r of the rows");
  if (workload.dispatch_codec != Codec::kNone) costs.Define("C1, D1 = the dispatch codec on S/r, and back");
  if (workload.combine_codec != Codec::kNone) costs.Define("C2, D2 = the combine codec on S/r, and back");
  const auto name = [&](const char* time_name, const char* formula, double time_s) {
    costs.Named(time_name, formula, [&] {
      ChunkStages(workload, r, costs);
      costs.CountEach(r);
      return time_s;
    });
  };
  name("OptSche",
       "a schedule's makespan: the end of the last of r tasks of each kind, in OptSche's order on one compute and one "
       "communication stream",
       answer.opt_sche_time_s);
  name("optimum", "a schedule's makespan: the same tasks in the best of all orders", answer.optimal_time_s);
  costs.Choose("OptSche");
}

}  // namespace

std::vector<OrderedStage> ChainOf(std::span<const ChunkStage> stages, int chunks) {
  std::vector<OrderedStage> chain;
  for (const ChunkStage& stage : stages) {
    OrderedStage next = {.lane = static_cast<int>(stage.lane), .time_s = stage.time_s, .tasks = chunks};
    if (!chain.empty()) next.needs = {{.stage = static_cast<int>(chain.size()) - 1}};
    chain.push_back(std::move(next));
  }
  return chain;
}

StageOrder OptSche(std::span<const ChunkStage> stages, int chunks) {
  // Equation 12, with A1 and A2 where their equations 13 and 14 have all they wait for.
  static const std::array<std::vector<std::string>, 5> kGroups = {{{"C1"}, {"A1"}, {"D1", "E", "C2"}, {"A2"}, {"D2"}}};
  StageOrder order;
  for (const auto& group : kGroups) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage) {
        if (std::ranges::find(group, stages[stage].name) != group.end()) order.push_back({stage, chunk});
      }
    }
  }
  return order;
}

StatusOr<SchemoeAnswer> SchemoeRule(const Workload& workload, const Profile& profile, PriceNotes& notes,
                                    ExplainedRule* explained, const StopSignals& stop) {
  RuleCosts costs(workload, profile, explained);
  std::vector<std::vector<ChunkStage>> stages_of;  // stages_of[r - 1] are those of r partitions,
  std::vector<double> opt_sche_s;                  // and opt_sche_s[r - 1] is their time.
  for (int r = 1; r <= std::min(workload.max_partition_degree, kMostChunks); ++r) {
    if (stop.Requested()) return StoppedBeforeAnswer("schemoe");
    const std::vector<ChunkStage>& stages = stages_of.emplace_back(ChunkStages(workload, r, costs));
    opt_sche_s.push_back(PlayStages(ChainOf(stages, r), OptSche(stages, r)).time_s);
  }
  RETURN_IF_ERROR(costs.Missing());
  const size_t fastest = FirstOfSmallest(opt_sche_s);
  const int r = static_cast<int>(fastest) + 1;
  SchemoeAnswer answer = {.partition_degree = r, .opt_sche_time_s = opt_sche_s[fastest]};
  const std::vector<ChunkStage>& stages = stages_of[fastest];
  const StageOrderOutcome search = SearchStageOrder(ChainOf(stages, r), OptSche(stages, r), kBudgetNodes, stop);
  answer.optimal_time_s = search.time_s;
  answer.order = NamesByStart(stages, r, search.order);
  if (costs.explains()) Explain(workload, answer, costs);
  notes.Merge(costs.notes());
  if (search.stop_reason != StopReason::kProvedBest) notes.remarks.insert(UnfinishedRemark(answer, search));
  return answer;
}

}  // namespace moeplan::planner
