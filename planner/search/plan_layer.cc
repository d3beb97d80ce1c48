#include "planner/search/plan_layer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "models/check.h"
#include "models/links/link_model.h"
#include "models/measurement/cost_key.h"
#include "models/routing/expert_load.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "planner/rules/monta.h"
#include "planner/rules/parm.h"
#include "planner/rules/schemoe.h"
#include "planner/search/candidate.h"
#include "planner/search/explain.h"
#include "planner/search/joint_search.h"
#include "planner/search/price_plan.h"
#include "planner/search/refusals.h"
#include "planner/ties.h"
#include "planner/wording.h"

namespace moeplan::planner {
namespace {

// ---- Rules.

template <typename Answer>
void Record(StatusOr<Answer> answer, const char* rule, std::optional<Answer>& into, std::vector<Skipped>& skipped) {
  if (answer.ok()) {
    into = *std::move(answer);
  } else {
    skipped.push_back({rule, answer.status().message()});
  }
}

void AskRules(const Workload& workload, const Profile& profile, const StopSignals& stop, PriceNotes& notes,
              PlanAnswer& answer) {
  Record(ParmRule(workload, profile, notes), "parm", answer.rules.parm, answer.skipped_rules);
  Record(MontaRule(workload, profile, notes, /*explained=*/nullptr, stop), "monta", answer.rules.monta,
         answer.skipped_rules);
  Record(SchemoeRule(workload, profile, notes, /*explained=*/nullptr, stop), "schemoe", answer.rules.schemoe,
         answer.skipped_rules);
  answer.skipped_rules.push_back({"lancet", "asks for a training graph: moeplan plan --graph GRAPH.json"});
}

// ---- Candidates.

// Smaller is simpler.
auto Simplicity(const Knobs& knobs) {
  const int ctas_taken_away = knobs.communication_ctas == 0 ? 0 : 1 + kMostCtas - knobs.communication_ctas;
  return std::tuple(knobs.dispatch_codec, knobs.combine_codec, knobs.family, knobs.all_to_all, ctas_taken_away,
                    PiecesOf(knobs), !knobs.chunk_shares.empty(), knobs.overlapped_gather);
}

// Sums in another order differ in the last bit, so times are compared in billionths of the fastest.
void SortBestFirst(std::vector<Candidate>& candidates, double fastest_s) {
  const auto rank = [&](const Candidate& candidate) {
    const double billionths =
        fastest_s > 0 ? std::nearbyint(candidate.time_s() / fastest_s / kTie) : candidate.time_s();
    return std::pair(billionths, Simplicity(candidate.knobs));
  };
  std::ranges::stable_sort(candidates, {}, rank);
}

// A gain below what measurements can tell is none: of the candidates that close behind the fastest, the simplest is the
// best.
void PutSimplestOfTiesFirst(std::vector<Candidate>& best_first, double indistinct_s) {
  if (best_first.empty()) return;
  const double tied_s = best_first.front().time_s() + indistinct_s;
  const auto end =
      std::ranges::find_if(best_first, [&](const Candidate& candidate) { return candidate.time_s() > tied_s; });
  const auto simplicity = [](const Candidate& candidate) { return Simplicity(candidate.knobs); };
  const auto simplest = std::ranges::min_element(best_first.begin(), end, {}, simplicity);
  std::rotate(best_first.begin(), simplest, std::next(simplest));
}

// The same among those that rows tell apart: of each family and number of pieces the fastest, so that this is also the
// first of its own row.
void PutSimplestRowFirst(std::vector<Candidate>& best_first, double indistinct_s) {
  std::set<std::pair<Family, int>> rows;
  const auto known = [&](const Candidate& candidate) {
    return !rows.insert({candidate.knobs.family, PiecesOf(candidate.knobs)}).second;
  };
  std::vector<Candidate> others;
  for (Candidate& candidate : std::exchange(best_first, {})) {
    (known(candidate) ? others : best_first).push_back(std::move(candidate));
  }
  PutSimplestOfTiesFirst(best_first, indistinct_s);
  std::ranges::move(others, std::back_inserter(best_first));
  std::stable_sort(best_first.begin() + 1, best_first.end(),
                   [](const Candidate& a, const Candidate& b) { return a.time_s() < b.time_s(); });
}

// ---- The answer.

bool HasRule(const RuleAnswers& rules) { return rules.parm || rules.monta || rules.schemoe; }

Status NothingLeft(const PlanAnswer& answer, const PlanOptions& options) {
  if (answer.search.stop_reason == StopReason::kCancelled || answer.search.stop_reason == StopReason::kOutOfTime) {
    return Cancelled("planning was stopped before anything was answered");
  }
  const std::vector<Skipped>& why = answer.skipped_rules.empty() ? answer.skipped_candidates : answer.skipped_rules;
  if (why.empty() && options.pieces > 0) return InvalidInput(NoPlanInSuchPieces(*options.family));
  return InvalidInput(StrCat(options.baselines_only ? "no baseline is left: " : "no rule and no candidate is left: ",
                             why.front().reason));
}

// What keeps every schedule from being a candidate, and what to do about it.
std::string WhyNoCandidate(const FoundCandidates& found, const Layout& layout, const Cluster& cluster) {
  if (const double bytes = found.least_unfit_bytes; std::isfinite(bytes)) {
    const std::string lacks =
        found.missing.empty() ? "" : StrCat(" Costs are missing, too: ", MissingReason(found.missing, layout), ".");
    return StrCat("No candidate that can be priced fits: the smallest ", TooLarge(bytes, cluster),
                  "; lower layer.batch or layer.sequenceLength, or raise layout.expertParallel or "
                  "layout.expertShardingParallel.",
                  lacks, " Only the rules answered.");
  }
  if (found.outcome.stop_reason == StopReason::kOutOfTime) {
    return "Out of time before a candidate was priced. Only the rules answered.";
  }
  if (found.outcome.stop_reason == StopReason::kCancelled)
    return "Cancelled before a candidate was priced. Only the rules answered.";
  const Skipped first = found.skipped.front();  // No family is a candidate, so each is there.
  return StrCat("No candidate could be priced: ", first.what, ": ", first.reason, ". Only the rules answered.");
}

PlanComparison Compare(const std::vector<Candidate>& best_first, double indistinct_s) {
  PlanComparison comparison = {.indistinct_s = indistinct_s};
  const std::optional<size_t> other = RunnerUp(best_first);
  if (other && best_first[*other].knobs.family != best_first.front().knobs.family)
    comparison.runner_up = PlanOf(best_first[*other]);
  if (const std::optional<size_t> baseline = FasterBaseline(best_first))
    comparison.baseline_time_s = best_first[*baseline].time_s();
  return comparison;
}

StatusOr<ComparedAnswer> ThoseOfLessMemory(PlanAnswer answer, FoundCandidates found, const PlanOptions& options,
                                           const StopSignals& cancelled) {
  std::vector<Candidate>& candidates = found.listed;
  if (candidates.empty()) return NothingLeft(answer, options);
  AddInterval(candidates.front(), cancelled);
  PutSimplestRowFirst(candidates, IndistinctGainS(candidates.front()));
  double least_bytes = std::numeric_limits<double>::infinity();
  PriceNotes notes;
  for (Candidate& candidate : candidates) {
    notes.Merge(candidate.prices.notes);
    if (candidate.memory_bytes >= least_bytes) continue;
    least_bytes = candidate.memory_bytes;
    AddInterval(candidate, cancelled);
    answer.candidates.push_back(PlanOf(candidate));
  }
  answer.warnings = notes.Warnings();
  return ComparedAnswer{.answer = std::move(answer), .comparison = {}};
}

StatusOr<ComparedAnswer> PlanResolved(PlanAnswer answer, const Profile& profile, PriceNotes notes,
                                      const PlanOptions& options, const PlanBudget& budget) {
  if (options.rules) {
    Workload even = answer.workload;
    even.layer.counted_slots = 0;  // The papers' rules know no routing.
    AskRules(even, profile, budget.stop, notes, answer);
  }

  FoundCandidates found = SearchCandidates(answer.workload, profile, options, budget);
  std::vector<Candidate>& candidates = found.listed;
  answer.search = found.outcome;
  answer.skipped_candidates = found.skipped;
  if (candidates.empty() && !HasRule(answer.rules)) return NothingLeft(answer, options);

  const StopSignals cancelled = {.cancelled = budget.stop.cancelled, .out_of_time = {}};
  SortBestFirst(candidates, found.fastest_s);
  if (options.for_rows) return ThoseOfLessMemory(std::move(answer), std::move(found), options, cancelled);
  if (!candidates.empty()) AddInterval(candidates.front(), cancelled);
  const double indistinct_s = candidates.empty() ? 0 : IndistinctGainS(candidates.front());
  if (!options.baselines_only) PutSimplestOfTiesFirst(candidates, indistinct_s);
  const size_t answered = options.top > 0 ? std::min<size_t>(options.top, candidates.size()) : candidates.size();
  for (size_t i = 0; i < answered; ++i) AddInterval(candidates[i], cancelled);
  if (const std::optional<size_t> other = RunnerUp(candidates)) AddInterval(candidates[*other], cancelled);
  ComparedAnswer compared = {.answer = {}, .comparison = Compare(candidates, indistinct_s)};
  answer.explanation = candidates.empty() ? WhyNoCandidate(found, answer.workload.layout, profile.cluster)
                                          : Explain(candidates, budget.stop);
  if (found.ruled_out > 0 && !candidates.empty()) {
    answer.explanation += StrCat(" Not listed: ", found.ruled_out,
                                 " variants with codecs, whose longest path or busiest stream alone takes longer than "
                                 "the fastest.");
  }
  if (profile.cluster.device_memory_bytes <= 0 && !candidates.empty()) {
    answer.explanation += " Whether it fits was not checked: cluster.deviceMemoryBytes is not known.";
  }
  for (const Candidate& candidate : candidates) notes.Merge(candidate.prices.notes);
  answer.warnings = notes.Warnings();
  candidates.resize(answered);
  for (const Candidate& candidate : candidates) answer.candidates.push_back(PlanOf(candidate));
  compared.answer = std::move(answer);
  return compared;
}

// The answer is about the layer that was asked about, and says with which slots it was priced.
void AskedCapacity(const Workload& asked, PlanAnswer& answer) {
  if (!IsDropless(asked.layer)) return;
  const double factor = CapacityFactorOf(answer.workload.layer, answer.workload.layout);
  answer.workload.layer = asked.layer;
  answer.warnings.push_back(
      StrCat("layer.capacityFactor is 0 (dropless): the rules take f = 1, candidates f = ", ThreeDigits(factor),
             asked.routing ? ", which the busiest expert of routing is expected to need"
                           : ", which the busiest expert of even routing is expected to need; give routing",
             ", and every call has as many slots as its own busiest expert needs"));
}

Status CheckBudget(const PlanBudget& budget) {
  MOEPLAN_CHECK(budget.nodes >= 0);
  if (budget.nodes <= kMostBudgetNodes) return OkStatus();
  return InvalidInput(StrCat("budgetNodes: found ", budget.nodes, ", expected at most ", kMostBudgetNodes));
}

}  // namespace

std::string NoPlanInSuchPieces(Family family) {
  return StrCat(
      "schedule: found ", Name(family),
      ", of which no plan with such a number of chunks and partitions was priced for this layer; moeplan plan "
      "says why it skips one");
}

StatusOr<ComparedAnswer> PlanAndCompare(const Workload& workload, const Profile& profile, const PlanOptions& options,
                                        const PlanBudget& budget) {
  RETURN_IF_ERROR(CheckBudget(budget));
  PlanAnswer answer;
  ASSIGN_OR_RETURN(const Workload asked, ResolveWorkload(workload, profile.cluster));
  answer.workload = WithExpectedSlots(asked);
  answer.profile_name = profile.name;
  answer.profile_version = profile.version;
  std::optional<Profile> filled;
  PriceNotes notes;
  if (options.links != nullptr) FillIn(*options.links, answer.workload, filled.emplace(profile), notes);
  ASSIGN_OR_RETURN(ComparedAnswer compared,
                   PlanResolved(std::move(answer), filled ? *filled : profile, std::move(notes), options, budget));
  AskedCapacity(asked, compared.answer);
  return compared;
}

StatusOr<PlanAnswer> PlanLayer(const Workload& workload, const Profile& profile, const PlanOptions& options,
                               const PlanBudget& budget) {
  ASSIGN_OR_RETURN(ComparedAnswer compared, PlanAndCompare(workload, profile, options, budget));
  return std::move(compared.answer);
}

StatusOr<Plan> PlanBaseline(const Workload& workload, const Profile& profile, const StopSignals& stop) {
  PlanOptions options = {.top = 1, .rules = false, .baselines_only = true};
  const PlanBudget budget = {.nodes = 0, .stop = stop};
  StatusOr<PlanAnswer> answer = PlanLayer(workload, profile, options, budget);
  if (answer.status().code() == StatusCode::kInvalidInput) {
    const LinkModel links(profile);
    options.links = &links;
    answer = PlanLayer(workload, profile, options, budget);
  }
  RETURN_IF_ERROR(answer.status());
  return std::move(answer->candidates.front());
}

double LayerFloorS(const Workload& workload, const Profile& profile, const StopSignals& stop) {
  const StatusOr<Workload> resolved = ResolveWorkload(workload, profile.cluster);
  if (!resolved.ok()) return 0;
  return SearchCandidates(WithExpectedSlots(*resolved), profile, {}, {.nodes = 0, .stop = stop}).outcome.time_floor_s;
}

}  // namespace moeplan::planner
