#include "planner/search/joint_search.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "models/measurement/candidates.h"
#include "models/measurement/cost_key.h"
#include "models/memory/graph_memory.h"
#include "models/schedule/carry.h"
#include "models/schedule/launch_order.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "planner/gradients/place_gradients.h"
#include "planner/search/drawing.h"
#include "planner/search/task_order.h"
#include "planner/search/unequal_chunks.h"

namespace moeplan {
namespace {

constexpr double kRounding = 1e-9;
constexpr int kFirstLookNodes = 250;
constexpr double kNever = std::numeric_limits<double>::infinity();

class Search {
 public:
  Search(const Workload& workload, const Profile& profile, const PlanOptions& options)
      : workload_(workload), profile_(profile), options_(options), index_(profile), limits_(LimitsOf(profile)) {}

  FoundCandidates Run() {
    std::vector<Knobs> variants;
    for (const Family family : Families()) {
      if (options_.baselines_only && !IsBaseline(family)) continue;
      if (const Status allowed = FamilyAllowed(family, workload_); !allowed.ok()) {
        Skip(Knobs{.family = family}, allowed.message());
        continue;
      }
      AddVariants(family, variants);
    }
    std::vector<Tried*> lossless;
    for (const Knobs& variant : variants) lossless.push_back(&AddVariant(variant));
    for (const std::vector<Tried*>& alike : CarriedUnlike(lossless)) {
      for (const int pieces : ChunkCounts(alike.front()->most_pieces)) {
        for (Tried* tried : alike) TryPieces(*tried, pieces);
      }
    }
    TryCodecs(variants);
    for (const Tried& tried : tried_) ReportTooLarge(tried);
    TryUnequalChunks();
    SearchOrders();
    if (workload_.gradient_bytes > 0) AddGradients();
    for (Tried& tried : tried_) List(std::move(tried));
    FoundCandidates found = {.listed = std::move(listed_),
                             .outcome = Outcome(),
                             .fastest_s = fastest_s_,
                             .least_unfit_bytes = least_unfit_bytes_,
                             .missing = {missing_.begin(), missing_.end()},
                             .ruled_out = ruled_out_};
    for (auto& [family, one] : skipped_) found.skipped.push_back(std::move(one));
    return found;
  }

 private:
  // What became of one variant, piece count by piece count.
  struct Tried {
    Knobs variant;
    int most_pieces = 1;
    std::vector<Candidate> priced;
    std::vector<Candidate> unequal;  // One, where it is the fastest of all.
    std::vector<double> too_large_bytes;
    bool given_up = false;  // It cannot be built or priced.
    bool has_codec = false;
    bool fastest_alone = false;                    // Is listed.
    std::optional<std::vector<StreamCost>> whole;  // In one piece; where it was asked for.
    double fastest_s = kNever;
  };

  SearchOutcome Outcome() const {
    SearchOutcome outcome = {.stop_reason = stop_reason_, .evaluated = priced_ + too_large_};
    if (outcome.stop_reason == StopReason::kCancelled || outcome.stop_reason == StopReason::kOutOfTime) return outcome;
    const double floor_s = std::min(time_floor_s_, fastest_s_);
    outcome.time_floor_s = std::isfinite(floor_s) ? floor_s : 0;
    const bool proved = floor_s >= fastest_s_ * (1 - kRounding);
    outcome.stop_reason = proved ? StopReason::kProvedBest : StopReason::kOutOfBudget;
    return outcome;
  }

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
      AddLimited(variant, variants);
    }
    if (!not_measured.empty()) Skip({.family = family}, MissingReason(not_measured, workload_.layout));
  }

  // The variant with every number of CTAs that its all-to-all was measured with, more first.
  void AddLimited(Knobs variant, std::vector<Knobs>& variants) const {
    if (ExchangeKey(variant).group.size == 1) return;
    for (const int ctas : limits_) {
      variant.communication_ctas = ctas;
      if (Find(profile_, ExchangeKey(variant)) != nullptr) variants.push_back(variant);
    }
  }

  static std::set<int, std::greater<>> LimitsOf(const Profile& profile) {
    std::set<int, std::greater<>> limits;
    for (const CollectiveModel& entry : profile.collectives) limits.insert(entry.key.ctas);
    limits.erase(0);
    return limits;
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
    key.ctas = knobs.communication_ctas;
    return key;
  }

  Tried& AddVariant(const Knobs& variant) {
    Tried& tried = tried_.emplace_back();
    tried.variant = variant;
    tried.most_pieces = MaxPieces(variant.family, workload_);
    tried.has_codec = HasCodec(variant);
    tried.fastest_alone =
        tried.has_codec || variant.all_to_all != AllToAllAlgorithm::kDirect || variant.communication_ctas != 0;
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
    const std::vector<std::vector<Tried*>> groups = CarriedUnlike(coded);
    for (const int pieces : PowersOfTwo(kMostChunks)) {
      for (const std::vector<Tried*>& alike : groups) {
        for (Tried* tried : alike) {
          if (pieces <= tried->most_pieces && !RuledOut(*tried, pieces)) TryPieces(*tried, pieces);
        }
      }
    }
    for (const Tried* tried : coded) {
      if (!Stopped() && tried->priced.empty() && tried->too_large_bytes.empty() && !tried->given_up) ++ruled_out_;
    }
  }

  // Groups of those that differ in how their exchanges are carried alone, so that each group's graphs are one graph.
  static std::vector<std::vector<Tried*>> CarriedUnlike(const std::vector<Tried*>& variants) {
    std::vector<std::vector<Tried*>> groups;
    for (Tried* tried : variants) {
      const auto alike = std::ranges::find_if(
          groups, [&](const auto& group) { return DifferInCarriageAlone(group[0]->variant, tried->variant); });
      (alike == groups.end() ? groups.emplace_back() : *alike).push_back(tried);
    }
    return groups;
  }

  // A layer that ends later can leave gaps for more of the gradients.
  bool BoundsHold() const { return workload_.gradient_bytes == 0; }

  bool RuledOut(const Tried& tried, int pieces) {
    return BoundsHold() && tried.whole && WorkInPiecesAtLeastS(*tried.whole, index_, pieces) >= fastest_s_;
  }

  void TryPieces(Tried& tried, int pieces) {
    if (tried.given_up || Stopped()) return;
    const Knobs knobs = WithPieces(tried.variant, pieces);
    if (const Status status = TryChunks(knobs, tried); !status.ok()) {
      Skip(knobs, status.message());
      tried.given_up = true;
    }
  }

  struct PricedGraph {
    const TaskGraph& graph;  // Until the next is priced.
    GraphPrices prices;
    double memory_bytes = 0;
  };

  // None when it does not fit.
  StatusOr<std::optional<PricedGraph>> Price(const Knobs& knobs, Tried& tried) {
    RETURN_IF_ERROR(drawing_.Draw(knobs));
    const double bytes = MemoryBytes(drawing_.whole(), workload_);
    if (!Fits(bytes)) {
      ++too_large_;
      if (tried.too_large_bytes.empty()) NoteMissing(drawing_.Prices());
      tried.too_large_bytes.push_back(bytes);
      least_unfit_bytes_ = std::min(least_unfit_bytes_, bytes);
      return std::optional<PricedGraph>();
    }
    GraphPrices prices = drawing_.Prices();
    NoteMissing(prices);
    if (!prices.missing.empty()) return NotFound(MissingReason(prices.missing, workload_.layout));
    ++priced_;
    return std::optional<PricedGraph>({drawing_.priced(), std::move(prices), bytes});
  }

  void NoteMissing(const GraphPrices& prices) { missing_.insert(prices.missing.begin(), prices.missing.end()); }

  Status TryChunks(const Knobs& knobs, Tried& tried) {
    ASSIGN_OR_RETURN(std::optional<PricedGraph> priced, Price(knobs, tried));
    if (!priced) return OkStatus();
    auto& [graph, prices, bytes] = *priced;
    // Of which the fastest alone is listed, one that cannot be it need not be played; with codecs, which are less
    // simple than all that was tried before, one that cannot be the best.
    const double to_beat_s = tried.has_codec ? fastest_s_ : tried.fastest_s;
    if (tried.has_codec && PiecesOf(knobs) == 1) tried.whole = StreamCosts(graph);
    if (BoundsHold() && tried.fastest_alone && TaskOrderFloorS(graph, prices.tasks) >= to_beat_s) return OkStatus();
    tried.priced.push_back(MakeCandidate(knobs, graph, std::move(prices), bytes));
    tried.fastest_s = std::min(tried.fastest_s, tried.priced.back().time_s());
    fastest_s_ = std::min(fastest_s_, tried.fastest_s);
    return OkStatus();
  }

  // The powers of two and the fastest; of the many variants with codecs, other all-to-alls or limited CTAs the fastest
  // alone.
  void List(Tried tried) {
    const auto fastest = std::ranges::min_element(tried.priced, {}, &Candidate::time_s);
    for (auto candidate = tried.priced.begin(); candidate != tried.priced.end(); ++candidate) {
      if (candidate != fastest && (tried.fastest_alone || !IsPowerOfTwo(PiecesOf(candidate->knobs)))) continue;
      listed_.push_back(std::move(*candidate));
    }
    std::ranges::move(tried.unequal, std::back_inserter(listed_));
  }

  // ---- Launch orders.

  struct Ordering {
    Candidate* candidate = nullptr;
    double floor_s = 0;   // Under all its orders.
    bool looked = false;  // At an order of its drawing.
  };

  // Of the candidates of few pieces that another order could make the fastest. Half of the nodes are for a first look:
  // candidates of one drawing have the same tasks, so what is found for one is tried on all. The others go to the most
  // promising.
  void SearchOrders() {
    std::vector<Ordering> orderings;
    for (Tried& tried : tried_) {
      for (Candidate& candidate : tried.priced) {
        if (PiecesOf(candidate.knobs) > kMostOrderedPieces) continue;
        orderings.push_back({&candidate, TaskOrderFloorS(candidate.graph, candidate.prices.tasks)});
      }
    }
    std::ranges::stable_sort(orderings, {}, [](const Ordering& one) { return one.candidate->time_s(); });
    const int first_half = options_.budget_nodes / 2;
    for (Ordering& one : orderings) {
      if (one.looked || nodes_ >= first_half || !CanBeFastest(one)) continue;
      one.looked = true;
      const std::vector<TaskId> order = SearchOrderOf(one, std::min(kFirstLookNodes, first_half - nodes_));
      if (!order.empty()) TryOnOthers(order, one, orderings);
    }
    std::ranges::stable_sort(orderings, {}, &Ordering::floor_s);
    for (Ordering& one : orderings) {
      if (nodes_ < options_.budget_nodes && CanBeFastest(one)) SearchOrderOf(one, options_.budget_nodes - nodes_);
    }
    for (const Ordering& one : orderings) time_floor_s_ = std::min(time_floor_s_, one.floor_s);
  }

  void TryOnOthers(const std::vector<TaskId>& order, const Ordering& found, std::vector<Ordering>& orderings) {
    for (Ordering& other : orderings) {
      if (other.looked || !DifferInCarriageAlone(other.candidate->knobs, found.candidate->knobs)) continue;
      other.looked = true;
      if (CanBeFastest(other)) TakeIfFaster(order, *other.candidate);
    }
  }

  bool CanBeFastest(const Ordering& one) { return one.floor_s < fastest_s_ * (1 - kRounding) && !Stopped(); }

  // The order, where it is another than the candidate's.
  std::vector<TaskId> SearchOrderOf(Ordering& one, int nodes) {
    Candidate& candidate = *one.candidate;
    TaskOrderOutcome found = SearchTaskOrder(candidate.graph, candidate.prices.tasks, candidate.played, index_, nodes);
    nodes_ += found.nodes;
    one.floor_s = std::max(one.floor_s, found.time_floor_s);
    if (!found.order.empty()) TakeIfFaster(found.order, candidate);
    return std::move(found.order);
  }

  // By more than measurements can tell.
  void TakeIfFaster(const std::vector<TaskId>& order, Candidate& candidate) {
    TaskGraph graph = Relaunched(candidate.graph, order);
    GraphPrices prices = PriceGraph(graph, index_);
    Candidate relaunched = MakeCandidate(candidate.knobs, std::move(graph), std::move(prices), candidate.memory_bytes);
    if (relaunched.time_s() >= candidate.time_s()) return;
    AddInterval(candidate);
    if (relaunched.time_s() >= candidate.time_s() - IndistinctGainS(candidate)) return;
    candidate = std::move(relaunched);
    fastest_s_ = std::min(fastest_s_, candidate.time_s());
  }

  // ---- Unequal chunks.

  // Of each family, of the variant that is fastest in equal chunks, in the order of its schedule. Only the fastest of
  // all is listed, and only where it beats equal ones by more than measurements can tell from none.
  void TryUnequalChunks() {
    std::map<Family, Tried*> by_family;
    Candidate* fastest = nullptr;
    for (Tried& tried : tried_) {
      Candidate* own = FastestOf(tried);
      if (own == nullptr) continue;
      if (fastest == nullptr || own->time_s() < fastest->time_s()) fastest = own;
      Tried*& of_family = by_family[tried.variant.family];
      if (of_family == nullptr || own->time_s() < FastestOf(*of_family)->time_s()) of_family = &tried;
    }
    if (fastest == nullptr) return;
    AddInterval(*fastest);
    double to_beat_s = fastest->time_s() - IndistinctGainS(*fastest);
    std::optional<Candidate> best;
    Tried* of_best = nullptr;
    for (const auto& [family, tried] : by_family) {
      if (TryUnequalChunks(*tried, to_beat_s, best)) of_best = tried;
    }
    if (!best) return;
    fastest_s_ = best->time_s();
    of_best->unequal.push_back(*std::move(best));
  }

  static Candidate* FastestOf(Tried& tried) {
    const auto fastest = std::ranges::min_element(tried.priced, {}, &Candidate::time_s);
    return fastest == tried.priced.end() ? nullptr : &*fastest;
  }

  // Whether `best` became one of these.
  bool TryUnequalChunks(Tried& tried, double& to_beat_s, std::optional<Candidate>& best) {
    bool found = false;
    const auto improved = [&](const Knobs& knobs) {
      StatusOr<std::optional<PricedGraph>> priced = Price(knobs, tried);
      if (priced.ok() && *priced) {
        --priced_;  // Was counted when it was weighed.
        auto& [graph, prices, bytes] = **priced;
        Candidate candidate = MakeCandidate(knobs, graph, std::move(prices), bytes);
        if (candidate.time_s() < to_beat_s) {
          to_beat_s = candidate.time_s();
          best = std::move(candidate);
          found = true;
        }
      }
      return to_beat_s;
    };
    for (int pieces = 2; pieces <= std::min(tried.most_pieces, kMostUnequalPieces); ++pieces) {
      if (Stopped() || !CanBeatInUnequal(pieces, tried, to_beat_s)) continue;
      priced_ += WeighUnequalChunks(WithPieces(tried.variant, pieces), workload_, index_, to_beat_s, improved);
    }
    return found;
  }

  bool CanBeatInUnequal(int pieces, Tried& tried, double to_beat_s) {
    if (!tried.whole) {
      StatusOr<TaskGraph> whole = BuildSchedule(WithPieces(tried.variant, 1), workload_, profile_.cluster);
      if (!whole.ok()) return false;
      tried.whole = StreamCosts(PartOf(*std::move(whole), workload_.phase));
    }
    return WorkInUnequalPiecesAtLeastS(*tried.whole, index_, pieces, kShareUnits) < to_beat_s;
  }

  // ---- Gradients.

  // From here on candidates end with theirs; what no layer ends before is a floor.
  void AddGradients() {
    time_floor_s_ = std::min(time_floor_s_, fastest_s_);
    fastest_s_ = kNever;
    for (Tried& tried : tried_) {
      for (Candidate& layer : std::exchange(tried.priced, {})) AddGradients(std::move(layer), tried.priced);
      for (Candidate& layer : std::exchange(tried.unequal, {})) AddGradients(std::move(layer), tried.unequal);
    }
    if (fastest_s_ == kNever) priced_ = 0;  // None has a price after all.
    // Its sizes were chosen for the layer alone.
    for (Tried& tried : tried_)
      std::erase_if(tried.unequal, [&](const auto& one) { return one.time_s() > fastest_s_; });
  }

  void AddGradients(Candidate layer, std::vector<Candidate>& into) {
    StatusOr<PlacedGradients> placed =
        PlaceGradients(std::move(layer.graph), std::move(layer.prices), workload_, profile_);
    if (!placed.ok()) return Skip(layer.knobs, placed.status().message());
    Candidate& candidate = into.emplace_back(
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
    if (knobs.overlapped_gather) variant = "with the overlapped gather";
    if (knobs.all_to_all != AllToAllAlgorithm::kDirect) variant = StrCat("with ", Name(knobs.all_to_all));
    if (knobs.communication_ctas != 0) {
      variant += StrCat(variant.empty() ? "with " : " and ", knobs.communication_ctas, " CTAs");
    }
    if (!variant.empty()) variant += ": ";
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
  CostIndex index_;  // Of profile_.
  Drawing drawing_{workload_, index_};
  const std::set<int, std::greater<>> limits_;  // On CTAs, that some collective was measured with.
  std::deque<Tried> tried_;
  std::vector<Candidate> listed_;
  std::multimap<Family, Skipped> skipped_;
  std::set<std::pair<Family, std::string>> told_;
  StopReason stop_reason_ = StopReason::kProvedBest;
  int priced_ = 0, too_large_ = 0;  // Graphs.
  int nodes_ = 0;
  int ruled_out_ = 0;  // Variants with codecs.
  double fastest_s_ = kNever;
  double time_floor_s_ = kNever;  // Of what was not searched to its end.
  double least_unfit_bytes_ = kNever;
  std::set<CostKey> missing_;
};

}  // namespace

FoundCandidates SearchCandidates(const Workload& workload, const Profile& profile, const PlanOptions& options) {
  return Search(workload, profile, options).Run();
}

std::string TooLarge(double bytes, const Cluster& cluster) {
  const auto whole = [](double number) { return static_cast<int64_t>(std::ceil(number)); };
  return StrCat("needs at least ", whole(bytes), " bytes on a GPU, ", whole(bytes - cluster.device_memory_bytes),
                " more than cluster.deviceMemoryBytes, which is ", whole(cluster.device_memory_bytes));
}

}  // namespace moeplan
