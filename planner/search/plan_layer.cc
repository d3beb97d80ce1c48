#include "planner/search/plan_layer.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "models/links/link_model.h"
#include "models/measurement/candidates.h"
#include "models/memory/graph_memory.h"
#include "models/schedule/launch_order.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "planner/gradients/place_gradients.h"
#include "planner/rules/monta.h"
#include "planner/rules/parm.h"
#include "planner/rules/schemoe.h"
#include "planner/search/candidate.h"
#include "planner/search/explain.h"
#include "planner/search/task_order.h"

namespace moeplan {
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

void AskRules(const Workload& workload, const Profile& profile, PriceNotes& notes, PlanAnswer& answer) {
  Record(ParmRule(workload, profile, notes), "parm", answer.rules.parm, answer.skipped_rules);
  Record(MontaRule(workload, profile, notes), "monta", answer.rules.monta, answer.skipped_rules);
  Record(SchemoeRule(workload, profile, notes), "schemoe", answer.rules.schemoe, answer.skipped_rules);
  answer.skipped_rules.push_back({"lancet", "asks for a training graph: moeplan plan --graph GRAPH.json"});
}

// ---- Candidates.

std::string TooLarge(double bytes, const Cluster& cluster) {
  return StrCat("needs at least ", BriefNumber(bytes), " bytes on a GPU, ",
                BriefNumber(bytes - cluster.device_memory_bytes), " more than cluster.deviceMemoryBytes, which is ",
                BriefNumber(cluster.device_memory_bytes));
}

constexpr double kIndistinctGain = 0.03;
constexpr double kRounding = 1e-9;

// What measurements cannot tell from none (docs/decisions/0005). Where no interval is known, times are taken at their
// word.
double IndistinctGainS(const Candidate& candidate) {
  return std::min(kIndistinctGain * candidate.time_s(), (candidate.high_s - candidate.low_s) / 2);
}

class Search {
 public:
  Search(const Workload& workload, const Profile& profile, const PlanOptions& options)
      : workload_(workload), profile_(profile), options_(options) {}

  // The candidates to list.
  std::vector<Candidate> Run() {
    std::vector<Knobs> variants;
    for (const Family family : Families()) {
      if (const Status allowed = FamilyAllowed(family, workload_); !allowed.ok()) {
        Skip(Knobs{.family = family}, allowed.message());
        continue;
      }
      AddVariants(family, variants);
    }
    for (const Knobs& variant : variants) {
      Tried& tried = AddVariant(variant);
      for (const int pieces : ChunkCounts(tried.most_pieces)) TryPieces(tried, pieces);
    }
    TryCodecs(variants);
    for (const Tried& tried : tried_) ReportTooLarge(tried);
    SearchOrders();
    if (workload_.gradient_bytes > 0) AddGradients();
    for (Tried& tried : tried_) List(std::move(tried));
    return std::move(listed_);
  }

  // What the finished Run was like.
  StopReason stop_reason() const { return stop_reason_; }
  int evaluated() const { return evaluated_; }
  double fastest_s() const { return fastest_s_; }  // Infinity when nothing was priced.
  double time_floor_s() const { return std::min(time_floor_s_, fastest_s_); }
  int ruled_out() const { return ruled_out_; }  // Variants with codecs that a bound puts behind the fastest.
  double least_unfit_bytes() const { return least_unfit_bytes_; }  // Infinity when everything fits.
  std::vector<CostKey> missing() const {
    return {missing_.begin(), missing_.end()};
  }  // Of what fits and what does not.
  // In the order of Families().
  std::vector<Skipped> skipped() const {
    std::vector<Skipped> skipped;
    for (const auto& [family, one] : skipped_) skipped.push_back(one);
    return skipped;
  }

 private:
  // What became of one variant, piece count by piece count.
  struct Tried {
    Knobs variant;
    int most_pieces = 1;
    std::vector<Candidate> priced;
    std::vector<double> too_large_bytes;
    bool given_up = false;  // It cannot be built or priced.
    bool has_codec = false;
    bool fastest_alone = false;      // Is listed.
    std::optional<TaskGraph> whole;  // Of a variant with codecs: in one piece.
    double fastest_s = std::numeric_limits<double>::infinity();
  };

  bool Stopped() {
    if (stop_reason_ == StopReason::kProvedBest) {
      if (options_.out_of_time.stop_requested()) stop_reason_ = StopReason::kOutOfTime;
      if (options_.cancelled.stop_requested()) stop_reason_ = StopReason::kCancelled;
    }
    return stop_reason_ == StopReason::kCancelled || stop_reason_ == StopReason::kOutOfTime;
  }

  // What the profile lacks of all-to-all algorithms is told once for all of them.
  void AddVariants(Family family, std::vector<Knobs>& variants) {
    std::vector<CostKey> not_measured;
    for (const Knobs& variant : VariantsOf(family, workload_.layout, profile_.cluster.gpus_per_node)) {
      if (variant.all_to_all == AllToAllAlgorithm::kDirect || Find(profile_, ExchangeKey(variant)) != nullptr) {
        variants.push_back(variant);
      } else {
        not_measured.push_back(Essential(ExchangeKey(variant)));
      }
    }
    if (!not_measured.empty()) Skip({.family = family}, MissingReason(not_measured, workload_.layout));
  }

  static bool HasCodec(const Knobs& knobs) {
    return knobs.dispatch_codec != Codec::kNone || knobs.combine_codec != Codec::kNone;
  }

  // A codec that was not measured would cost nothing, and win; only one that the request names is tried like that.
  bool CodecsKnown(const Knobs& knobs) const {
    return CodecKnown(knobs.dispatch_codec, workload_.dispatch_codec) &&
           CodecKnown(knobs.combine_codec, workload_.combine_codec);
  }
  bool CodecKnown(Codec codec, Codec named) const {
    if (codec == Codec::kNone || codec == named) return true;
    const auto measured = [&](Kernel kernel) {
      return Find(profile_, KeyOf(kernel, workload_.layer, workload_.layout)) != nullptr;
    };
    return measured(EncodeKernel(codec)) && measured(DecodeKernel(codec));
  }

  CollectiveKey ExchangeKey(const Knobs& knobs) const {
    CollectiveKey key =
        KeyOf(Collective::kAllToAll, ExchangeGroup(knobs.family), workload_.layout, profile_.cluster.gpus_per_node);
    key.algorithm = knobs.all_to_all;
    key.bytes_per_element = workload_.layer.bytes_per_element;
    return key;
  }

  Tried& AddVariant(const Knobs& variant) {
    Tried& tried = tried_.emplace_back();
    tried.variant = variant;
    tried.most_pieces = MaxPieces(variant.family, workload_);
    tried.has_codec = HasCodec(variant);
    tried.fastest_alone = tried.has_codec || variant.all_to_all != AllToAllAlgorithm::kDirect;
    return tried;
  }

  // Last, and few pieces first, so that there are fast ones for bounds to be compared with.
  void TryCodecs(const std::vector<Knobs>& variants) {
    std::vector<Tried*> coded;
    for (const Knobs& variant : variants) {
      for (const Knobs& knobs : WithCodecs(variant, workload_)) {
        if (HasCodec(knobs) && CodecsKnown(knobs)) coded.push_back(&AddVariant(knobs));
      }
    }
    for (const int pieces : PowersOfTwo(kMostChunks)) {
      for (Tried* tried : coded) {
        if (pieces <= tried->most_pieces && !RuledOut(*tried, pieces)) TryPieces(*tried, pieces);
      }
    }
    for (const Tried* tried : coded) {
      if (!Stopped() && tried->priced.empty() && tried->too_large_bytes.empty() && !tried->given_up) ++ruled_out_;
    }
  }

  // A layer that ends later can leave gaps for more of the gradients.
  bool BoundsHold() const { return workload_.gradient_bytes == 0; }

  bool RuledOut(const Tried& tried, int pieces) const {
    return BoundsHold() && tried.whole && WorkInPiecesAtLeastS(*tried.whole, profile_, pieces) >= fastest_s_;
  }

  void TryPieces(Tried& tried, int pieces) {
    if (tried.given_up || Stopped()) return;
    const Knobs knobs = WithPieces(tried.variant, pieces);
    if (const Status status = TryChunks(knobs, tried); !status.ok()) {
      Skip(knobs, status.message());
      tried.given_up = true;
    }
  }

  Status TryChunks(const Knobs& knobs, Tried& tried) {
    ASSIGN_OR_RETURN(TaskGraph graph, BuildSchedule(knobs, workload_, profile_.cluster));
    const double bytes = MemoryBytes(graph, workload_);
    if (!Fits(bytes)) {
      ++evaluated_;
      if (tried.too_large_bytes.empty()) NoteMissing(PriceGraph(PartOf(std::move(graph), workload_.phase), profile_));
      tried.too_large_bytes.push_back(bytes);
      least_unfit_bytes_ = std::min(least_unfit_bytes_, bytes);
      return OkStatus();
    }
    graph = PartOf(std::move(graph), workload_.phase);
    GraphPrices prices = PriceGraph(graph, profile_);
    NoteMissing(prices);
    if (!prices.missing.empty()) return NotFound(MissingReason(prices.missing, workload_.layout));
    ++evaluated_;
    // Of which the fastest alone is listed, one that cannot be it need not be played; with codecs, which are less
    // simple than all that was tried before, one that cannot be the best.
    const double to_beat_s = tried.has_codec ? fastest_s_ : tried.fastest_s;
    if (tried.has_codec && PiecesOf(knobs) == 1) tried.whole = graph;
    if (BoundsHold() && tried.fastest_alone && TaskOrderFloorS(graph, prices.tasks) >= to_beat_s) return OkStatus();
    tried.priced.push_back(MakeCandidate(knobs, std::move(graph), std::move(prices), bytes));
    tried.fastest_s = std::min(tried.fastest_s, tried.priced.back().time_s());
    fastest_s_ = std::min(fastest_s_, tried.fastest_s);
    return OkStatus();
  }

  void NoteMissing(const GraphPrices& prices) { missing_.insert(prices.missing.begin(), prices.missing.end()); }

  // The powers of two and the fastest; of the many variants with codecs or other all-to-alls the fastest alone.
  void List(Tried tried) {
    const auto fastest = std::ranges::min_element(tried.priced, {}, &Candidate::time_s);
    for (auto candidate = tried.priced.begin(); candidate != tried.priced.end(); ++candidate) {
      if (candidate != fastest && (tried.fastest_alone || !IsPowerOfTwo(PiecesOf(candidate->knobs)))) continue;
      listed_.push_back(std::move(*candidate));
    }
  }

  // ---- Launch orders.

  // Of the candidates of few pieces that another order could make the fastest, the most promising first.
  void SearchOrders() {
    std::vector<std::pair<double, Candidate*>> by_floor;
    for (Tried& tried : tried_) {
      for (Candidate& candidate : tried.priced) {
        const int pieces = PiecesOf(candidate.knobs);
        if (pieces > kMostOrderedPieces) continue;
        by_floor.emplace_back(TaskOrderFloorS(candidate.graph, candidate.prices.tasks), &candidate);
      }
    }
    std::ranges::stable_sort(by_floor, {}, [](const auto& one) { return one.first; });
    for (const auto& [floor_s, candidate] : by_floor) {
      if (floor_s >= fastest_s_ * (1 - kRounding)) break;
      if (Stopped() || !SearchOrderOf(*candidate)) {
        time_floor_s_ = std::min(time_floor_s_, floor_s);
        break;
      }
    }
  }

  // False when the budget is spent.
  bool SearchOrderOf(Candidate& candidate) {
    if (nodes_ >= options_.budget_nodes) return false;
    const TaskOrderOutcome found = SearchTaskOrder(candidate.graph, candidate.prices.tasks, candidate.played, profile_,
                                                   options_.budget_nodes - nodes_);
    nodes_ += found.nodes;
    if (!found.order.empty()) AddInterval(candidate);
    time_floor_s_ = std::min(time_floor_s_, found.time_floor_s);
    if (!found.order.empty() && found.time_s < candidate.time_s() - IndistinctGainS(candidate)) {
      TaskGraph graph = Relaunched(std::move(candidate.graph), found.order);
      GraphPrices prices = PriceGraph(graph, profile_);
      candidate = MakeCandidate(candidate.knobs, std::move(graph), std::move(prices), candidate.memory_bytes);
      fastest_s_ = std::min(fastest_s_, candidate.time_s());
    }
    return true;
  }

  // ---- Gradients.

  // From here on candidates end with theirs; what no layer ends before is a floor.
  void AddGradients() {
    time_floor_s_ = time_floor_s();
    fastest_s_ = std::numeric_limits<double>::infinity();
    for (Tried& tried : tried_) {
      for (Candidate& layer : std::exchange(tried.priced, {})) AddGradients(std::move(layer), tried);
    }
  }

  void AddGradients(Candidate layer, Tried& tried) {
    StatusOr<PlacedGradients> placed =
        PlaceGradients(std::move(layer.graph), std::move(layer.prices), workload_, profile_);
    if (!placed.ok()) {
      --evaluated_;  // It has no price after all.
      return Skip(layer.knobs, placed.status().message());
    }
    Candidate& candidate = tried.priced.emplace_back(
        MakeCandidate(layer.knobs, std::move(placed->graph), std::move(placed->prices), layer.memory_bytes));
    candidate.gradients = std::move(placed->exchange);
    fastest_s_ = std::min(fastest_s_, candidate.time_s());
  }

  bool Fits(double bytes) const {
    const double device_bytes = profile_.cluster.device_memory_bytes;
    return device_bytes <= 0 || bytes <= device_bytes;
  }

  void Skip(const Knobs& knobs, const std::string& reason) {
    if (!told_.emplace(knobs.family, reason).second) return;  // Another variant is skipped for the same.
    std::string variant;
    if (knobs.overlapped_gather) variant = "with the overlapped gather: ";
    if (knobs.all_to_all != AllToAllAlgorithm::kDirect) variant = StrCat("with ", Name(knobs.all_to_all), ": ");
    skipped_.emplace(knobs.family, Skipped{std::string(Name(knobs.family)), variant + reason});
  }

  void ReportTooLarge(const Tried& tried) {
    if (tried.too_large_bytes.empty()) return;
    const double least_bytes = *std::ranges::min_element(tried.too_large_bytes);
    const std::string which =
        tried.priced.empty() ? "" : StrCat("for ", tried.too_large_bytes.size(), " of its chunk counts, ");
    Skip(tried.variant, StrCat(which, TooLarge(least_bytes, profile_.cluster)));
  }

  const Workload& workload_;
  const Profile& profile_;
  const PlanOptions& options_;
  std::deque<Tried> tried_;
  std::vector<Candidate> listed_;
  std::multimap<Family, Skipped> skipped_;
  std::set<std::pair<Family, std::string>> told_;
  StopReason stop_reason_ = StopReason::kProvedBest;
  int evaluated_ = 0;
  int nodes_ = 0;
  int ruled_out_ = 0;  // Variants with codecs.
  double fastest_s_ = std::numeric_limits<double>::infinity();
  double time_floor_s_ = std::numeric_limits<double>::infinity();  // Of what was not searched to its end.
  double least_unfit_bytes_ = std::numeric_limits<double>::infinity();
  std::set<CostKey> missing_;
};

// Smaller is simpler.
auto Simplicity(const Knobs& knobs) {
  return std::tuple(knobs.dispatch_codec, knobs.combine_codec, knobs.family, knobs.all_to_all, PiecesOf(knobs),
                    knobs.overlapped_gather);
}

// Sums in another order differ in the last bit, so times are compared in billionths of the fastest.
void SortBestFirst(std::vector<Candidate>& candidates, double fastest_s) {
  const auto rank = [&](const Candidate& candidate) {
    const double billionths = fastest_s > 0 ? std::nearbyint(candidate.time_s() / fastest_s * 1e9) : candidate.time_s();
    return std::pair(billionths, Simplicity(candidate.knobs));
  };
  std::ranges::stable_sort(candidates, {}, rank);
}

// A gain below what measurements can tell is none: of the candidates that close behind the fastest, the simplest is the
// best.
void PutSimplestOfTiesFirst(std::vector<Candidate>& best_first) {
  if (best_first.empty()) return;
  const Candidate& fastest = best_first.front();
  const double tied_s = fastest.time_s() + IndistinctGainS(fastest);
  const auto end =
      std::ranges::find_if(best_first, [&](const Candidate& candidate) { return candidate.time_s() > tied_s; });
  const auto simplicity = [](const Candidate& candidate) { return Simplicity(candidate.knobs); };
  const auto simplest = std::ranges::min_element(best_first.begin(), end, {}, simplicity);
  std::rotate(best_first.begin(), simplest, std::next(simplest));
}

SearchOutcome OutcomeOf(const Search& search) {
  SearchOutcome outcome = {.stop_reason = search.stop_reason(), .evaluated = search.evaluated()};
  if (outcome.stop_reason == StopReason::kCancelled || outcome.stop_reason == StopReason::kOutOfTime) return outcome;
  outcome.time_floor_s = std::isfinite(search.time_floor_s()) ? search.time_floor_s() : 0;
  const bool proved = search.time_floor_s() >= search.fastest_s() * (1 - kRounding);
  outcome.stop_reason = proved ? StopReason::kProvedBest : StopReason::kOutOfBudget;
  return outcome;
}

// ---- The answer.

bool HasRule(const RuleAnswers& rules) { return rules.parm || rules.monta || rules.schemoe; }

Status NothingLeft(const PlanAnswer& answer) {
  if (answer.search.stop_reason == StopReason::kCancelled || answer.search.stop_reason == StopReason::kOutOfTime) {
    return Cancelled("planning was stopped before anything was answered");
  }
  const std::vector<Skipped>& why = answer.skipped_rules.empty() ? answer.skipped_candidates : answer.skipped_rules;
  return InvalidInput(StrCat("no rule and no candidate is left: ", why.front().reason));
}

// What keeps every schedule from being a candidate, and what to do about it.
std::string WhyNoCandidate(const Search& search, const Layout& layout, const Cluster& cluster) {
  if (const double bytes = search.least_unfit_bytes(); std::isfinite(bytes)) {
    const std::vector<CostKey> missing = search.missing();
    const std::string lacks =
        missing.empty() ? "" : StrCat(" Costs are missing, too: ", MissingReason(missing, layout), ".");
    return StrCat("No candidate that can be priced fits: the smallest ", TooLarge(bytes, cluster),
                  "; lower layer.batch or layer.sequenceLength, or raise layout.expertParallel or "
                  "layout.expertShardingParallel.",
                  lacks, " Only the rules answered.");
  }
  if (search.stop_reason() == StopReason::kOutOfTime) {
    return "Out of time before a candidate was priced. Only the rules answered.";
  }
  if (search.stop_reason() == StopReason::kCancelled)
    return "Cancelled before a candidate was priced. Only the rules answered.";
  const Skipped first = search.skipped().front();  // No family is a candidate, so each is there.
  return StrCat("No candidate could be priced: ", first.what, ": ", first.reason, ". Only the rules answered.");
}

// Adds what the links say of the layer's collectives that were not measured.
void FillIn(const LinkModel& links, const Workload& workload, Profile& profile, PriceNotes& notes) {
  for (const CollectiveKey& key : LayerCollectives(workload, profile.cluster.gpus_per_node)) {
    if (Find(profile, key) != nullptr) continue;
    std::optional<LinkPrediction> prediction = links.Predict(key);
    if (!prediction) continue;
    notes.remarks.insert(Describe(*prediction));
    profile.collectives.push_back(std::move(prediction->model));
  }
}

StatusOr<PlanAnswer> PlanResolved(PlanAnswer answer, const Profile& profile, PriceNotes notes,
                                  const PlanOptions& options) {
  if (options.rules) AskRules(answer.workload, profile, notes, answer);

  Search search(answer.workload, profile, options);
  std::vector<Candidate> candidates = search.Run();
  answer.search = OutcomeOf(search);
  answer.skipped_candidates = search.skipped();
  if (candidates.empty() && !HasRule(answer.rules)) return NothingLeft(answer);

  SortBestFirst(candidates, search.fastest_s());
  if (!candidates.empty()) AddInterval(candidates.front());
  PutSimplestOfTiesFirst(candidates);
  const size_t answered = options.top > 0 ? std::min<size_t>(options.top, candidates.size()) : candidates.size();
  for (size_t i = 0; i < answered; ++i) AddInterval(candidates[i]);
  if (const std::optional<size_t> other = RunnerUp(candidates)) AddInterval(candidates[*other]);
  answer.explanation =
      candidates.empty() ? WhyNoCandidate(search, answer.workload.layout, profile.cluster) : Explain(candidates);
  if (search.ruled_out() > 0 && !candidates.empty()) {
    answer.explanation += StrCat(" Not listed: ", search.ruled_out(),
                                 " variants with codecs, whose longest path or busiest stream alone takes longer than "
                                 "the fastest.");
  }
  for (const Candidate& candidate : candidates) notes.Merge(candidate.prices.notes);
  answer.warnings = notes.Warnings();
  candidates.resize(answered);
  for (const Candidate& candidate : candidates) answer.candidates.push_back(PlanOf(candidate));
  return answer;
}

}  // namespace

StatusOr<PlanAnswer> PlanLayer(const Workload& workload, const Profile& profile, const PlanOptions& options) {
  PlanAnswer answer;
  ASSIGN_OR_RETURN(answer.workload, ResolveWorkload(workload, profile.cluster));
  answer.profile_name = profile.name;
  answer.profile_version = profile.version;
  if (options.links == nullptr) return PlanResolved(std::move(answer), profile, /*notes=*/{}, options);
  Profile filled = profile;
  PriceNotes notes;
  FillIn(*options.links, answer.workload, filled, notes);
  return PlanResolved(std::move(answer), filled, std::move(notes), options);
}

double LayerFloorS(const Workload& workload, const Profile& profile) {
  const StatusOr<Workload> resolved = ResolveWorkload(workload, profile.cluster);
  if (!resolved.ok()) return 0;
  const PlanOptions no_orders = {.budget_nodes = 0};
  Search search(*resolved, profile, no_orders);
  search.Run();
  return std::isfinite(search.time_floor_s()) ? search.time_floor_s() : 0;
}

}  // namespace moeplan
