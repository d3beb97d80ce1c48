// The joint search: every schedule of a layer, priced on its task graph and compared.
//
// The searched space is every allowed family with every variant, codec and chunk count of
// models/measurement/candidates.h (with codecs, chunk counts in powers of two), with the library's own choice of CTAs
// and every limit that the variant's all-to-all was measured with, each launched in the order its schedule
// is written in (OptSche's, for pipelines); and, for up to kMostOrderedPieces pieces, in every other order. The graphs
// are enumerated whole. Orders are searched by branch and bound, and only of graphs whose bound (the longest path, the
// work of two streams and what contention leaves of their overlap) is below the fastest time known.
// Then chunks of unequal sizes: of each family the variant that is fastest in equal chunks, in 2 to kMostUnequalPieces
// pieces of whole eighths (planner/search/unequal_chunks.h), in the order that its schedule is written in.
#pragma once

#include <optional>

#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "models/workload/workload.h"
#include "planner/stop_signals.h"

namespace moeplan {
class LinkModel;
}  // namespace moeplan

namespace moeplan::planner {

// Beyond, a pipeline's own order is close to the best and the number of orders is not.
inline constexpr int kMostOrderedPieces = 8;
inline constexpr int kDefaultBudgetNodes = 10000;
inline constexpr int kMostBudgetNodes = 10'000'000;

// What the best plan is held against, whether it is among the candidates returned or not.
struct PlanComparison {
  std::optional<Plan> runner_up;          // The fastest of another family with other tasks; absent where there is none.
  std::optional<double> baseline_time_s;  // Of the faster legal baseline; absent where none could be priced.
  double indistinct_s = 0;                // IndistinctGainS of the fastest: what differs by no more is alike.
};

// The question: which candidates to try and to list.
struct PlanOptions {
  int top = 0;                  // How many candidates to return; 0: all that are listed.
  bool rules = true;            // Whether the papers' rules are asked, too.
  bool baselines_only = false;  // Of the families only IsBaseline's, the fastest first.
  // For a ranking of layouts, whose rows say a family and a number of pieces: only equal pieces are tried, a power of
  // two of them; the answer has the best plan and each that needs less memory than all before it, unexplained.
  bool for_rows = false;
  std::optional<Family> family;  // With for_rows: this one alone; absent: all.
  int pieces = 0;                // With a family: exactly so many, a power of two or not; 0: any.
  // For what the profile lacks others stand in (FillIn in price_plan.h), each then named in the warnings; it was fitted
  // to that profile. Null: what it lacks is missing. Borrowed.
  const LinkModel* links = nullptr;
};

// The work and the time that an answer may take.
struct PlanBudget {
  // States of launch orders that may be visited in all, at most kMostBudgetNodes; 0: orders are not searched.
  int nodes = kDefaultBudgetNodes;
  StopSignals stop;
};

// Resolves the workload, asks the rules, prices the candidates. With gradient_bytes a candidate's time ends with the
// last slice of their all-reduce (planner/gradients/place_gradients.h), so a schedule that leaves gaps hides more;
// launch orders are searched for the layer alone, before its gradients are placed, and the floor is that of the layer.
//
// Listed are, of each family and variant, the chunk counts in powers of two and the fastest one, and one of unequal
// chunks where it is the fastest of all and its gain can be told from none, best first; times
// within a billionth of the best's are ties, and ties go to the simpler family, then to the
// DIRECT all-to-all, then to unlimited CTAs, then to more of them, then to fewer chunks, then to the gather that is not
// overlapped. On measured profiles (with
// intervals) the best is the simplest candidate within 3 % of the fastest, or within its costs' interval if narrower
// (docs/decisions/0005): a gain that measurements cannot tell is none, and buys no other launch order either. What
// cannot be priced or does not fit cluster.device_memory_bytes is named in skipped_candidates; memory is asked first.
//
// Variants with codecs are tried last and listed only where no bound puts them behind the fastest; the explanation
// counts the others.
//
// search.time_floor_s: no graph of the space ends earlier, whatever its launch order. Unequal chunks are in the space
// as docs/decisions/0011 says: in their schedule's order, of one variant a family, and only where they gain more than
// IndistinctGainS. PROVED_BEST: nor does any end earlier than the fastest. OUT_OF_BUDGET: that was not proved; all
// graphs were priced, and the floor counts the orders that were left. Bounds of orders take contention as what two
// streams cannot avoid, and those of a layer with gradient_bytes the gradients, so that there a gap may stay whatever
// the budget. Stopped before that, the floor is 0, and what was priced until then is answered.
//
// A cancelled answer leaves out what would take long to say: intervals, and where the answer flips; one that is out of
// time only the latter.
//
// kInvalidInput: the workload or the budget is wrong, or neither a rule nor a candidate could be answered (the message
// names what the first rule lacks). kCancelled: stopped before anything was answered.
// Requires a validated profile. Pure: the same arguments give the same answer, unless stopped.
StatusOr<PlanAnswer> PlanLayer(const Workload& workload, const Profile& profile, const PlanOptions& options = {},
                               const PlanBudget& budget = {});

// The answer of PlanLayer, and what its best plan is held against.
struct ComparedAnswer {
  PlanAnswer answer;
  PlanComparison comparison;
};
StatusOr<ComparedAnswer> PlanAndCompare(const Workload& workload, const Profile& profile,
                                        const PlanOptions& options = {}, const PlanBudget& budget = {});

// Says that no plan of the family has the number of pieces that was asked for.
std::string NoPlanInSuchPieces(Family family);

// The fastest of the baselines, in the order that it is written in: PlanComparison's, unless a search of launch orders
// made that faster. Others stand in for costs that the profile lacks where no baseline is priced without. Errors and
// requirements are PlanLayer's.
StatusOr<Plan> PlanBaseline(const Workload& workload, const Profile& profile, const StopSignals& stop = {});

// What PlanLayer's search.time_floor_s comes to without a search of launch orders: no candidate of any answer to the
// workload ends earlier. 0 where nothing can be priced, which PlanLayer tells the reason of. Takes a fraction of its
// time. Stopped, 0. Requires what it requires; pure.
double LayerFloorS(const Workload& workload, const Profile& profile, const StopSignals& stop = {});

}  // namespace moeplan::planner
