#include "planner/search/plan_layer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "models/links/link_model.h"
#include "models/measurement/candidates.h"
#include "models/memory/graph_memory.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "planner/rules/monta.h"
#include "planner/rules/parm.h"
#include "planner/rules/schemoe.h"
#include "planner/search/candidate.h"
#include "planner/search/explain.h"

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

class Search {
 public:
  Search(const Workload& workload, const Profile& profile, std::stop_token cancelled)
      : workload_(workload), profile_(profile), cancelled_(std::move(cancelled)) {}

  // The candidates to list, in the order of Families().
  std::vector<Candidate> Run() {
    for (const Family family : Families()) {
      if (const Status allowed = FamilyAllowed(family, workload_); !allowed.ok()) {
        Skip(Knobs{.family = family}, allowed.message());
        continue;
      }
      TryVariants(family);
    }
    return std::move(listed_);
  }

  // What the finished Run was like.
  bool stopped() const { return stopped_; }
  int evaluated() const { return evaluated_; }
  double fastest_s() const { return fastest_s_; }                  // Infinity when nothing was priced.
  double least_unfit_bytes() const { return least_unfit_bytes_; }  // Infinity when everything fits.
  const std::vector<Skipped>& skipped() const { return skipped_; }

 private:
  // What became of one variant, piece count by piece count.
  struct Tried {
    std::vector<Candidate> priced;
    std::vector<double> too_large_bytes;
  };

  // What the profile lacks of all-to-all algorithms is told once for all of them.
  void TryVariants(Family family) {
    std::vector<CostKey> not_measured;
    for (const Knobs& variant : VariantsOf(family, workload_.layout, profile_.cluster.gpus_per_node)) {
      if (variant.all_to_all == AllToAllAlgorithm::kDirect || Find(profile_, ExchangeKey(variant)) != nullptr) {
        for (const Knobs& coded : WithCodecs(variant, workload_)) {
          if (CodecsKnown(coded)) TryVariant(coded);
        }
      } else {
        not_measured.push_back(Essential(ExchangeKey(variant)));
      }
    }
    if (!not_measured.empty()) Skip({.family = family}, MissingReason(not_measured, workload_.layout));
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

  void TryVariant(const Knobs& variant) {
    Tried tried;
    Knobs knobs = variant;
    const int most = MaxPieces(variant.family, workload_);
    const bool coded = variant.dispatch_codec != Codec::kNone || variant.combine_codec != Codec::kNone;
    for (const int pieces : coded ? PowersOfTwo(most) : ChunkCounts(most)) {
      if (stopped_ = stopped_ || cancelled_.stop_requested(); stopped_) break;
      knobs = WithPieces(variant, pieces);
      if (const Status status = TryChunks(knobs, tried); !status.ok()) {
        Skip(knobs, status.message());
        break;
      }
    }
    if (!tried.too_large_bytes.empty()) SkipTooLarge(knobs, tried);
    List(std::move(tried.priced), /*fastest_alone=*/coded || variant.all_to_all != AllToAllAlgorithm::kDirect);
  }

  Status TryChunks(const Knobs& knobs, Tried& tried) {
    ASSIGN_OR_RETURN(TaskGraph graph, BuildSchedule(knobs, workload_, profile_.cluster));
    const double bytes = MemoryBytes(graph, workload_);
    if (!Fits(bytes)) {
      ++evaluated_;
      tried.too_large_bytes.push_back(bytes);
      least_unfit_bytes_ = std::min(least_unfit_bytes_, bytes);
      return OkStatus();
    }
    graph = PartOf(std::move(graph), workload_.phase);
    GraphPrices prices = PriceGraph(graph, profile_);
    if (!prices.missing.empty()) return NotFound(MissingReason(prices.missing, workload_.layout));
    ++evaluated_;
    tried.priced.push_back(MakeCandidate(knobs, std::move(graph), std::move(prices), bytes));
    fastest_s_ = std::min(fastest_s_, tried.priced.back().time_s());
    return OkStatus();
  }

  // The powers of two and the fastest; of the many variants with codecs or other all-to-alls the fastest alone.
  void List(std::vector<Candidate> priced, bool fastest_alone) {
    const auto fastest = std::ranges::min_element(priced, {}, &Candidate::time_s);
    for (auto candidate = priced.begin(); candidate != priced.end(); ++candidate) {
      if (candidate != fastest && (fastest_alone || !IsPowerOfTwo(PiecesOf(candidate->knobs)))) continue;
      listed_.push_back(std::move(*candidate));
    }
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
    skipped_.push_back({std::string(Name(knobs.family)), variant + reason});
  }

  void SkipTooLarge(const Knobs& knobs, const Tried& tried) {
    const double least_bytes = *std::ranges::min_element(tried.too_large_bytes);
    const std::string which =
        tried.priced.empty() ? "" : StrCat("for ", tried.too_large_bytes.size(), " of its chunk counts, ");
    Skip(knobs, StrCat(which, TooLarge(least_bytes, profile_.cluster)));
  }

  const Workload& workload_;
  const Profile& profile_;
  std::stop_token cancelled_;
  std::vector<Candidate> listed_;
  std::vector<Skipped> skipped_;
  std::set<std::pair<Family, std::string>> told_;
  bool stopped_ = false;
  int evaluated_ = 0;
  double fastest_s_ = std::numeric_limits<double>::infinity();
  double least_unfit_bytes_ = std::numeric_limits<double>::infinity();
};

constexpr double kIndistinctGain = 0.03;

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
// best. Where no interval is known, times are taken at their word.
void PutSimplestOfTiesFirst(std::vector<Candidate>& best_first) {
  if (best_first.empty()) return;
  const Candidate& fastest = best_first.front();
  const double half_interval_s = (fastest.high_s - fastest.low_s) / 2;
  const double tied_s = fastest.time_s() + std::min(kIndistinctGain * fastest.time_s(), half_interval_s);
  const auto end =
      std::ranges::find_if(best_first, [&](const Candidate& candidate) { return candidate.time_s() > tied_s; });
  const auto simplicity = [](const Candidate& candidate) { return Simplicity(candidate.knobs); };
  const auto simplest = std::ranges::min_element(best_first.begin(), end, {}, simplicity);
  std::rotate(best_first.begin(), simplest, std::next(simplest));
}

SearchOutcome OutcomeOf(const Search& search) {
  if (search.stopped()) {
    return {.stop_reason = StopReason::kCancelled, .time_floor_s = 0, .evaluated = search.evaluated()};
  }
  const double floor_s = std::isfinite(search.fastest_s()) ? search.fastest_s() : 0;
  return {.stop_reason = StopReason::kProvedBest, .time_floor_s = floor_s, .evaluated = search.evaluated()};
}

// ---- The answer.

bool HasRule(const RuleAnswers& rules) { return rules.parm || rules.monta || rules.schemoe; }

Status NothingLeft(const PlanAnswer& answer) {
  if (answer.search.stop_reason == StopReason::kCancelled) {
    return Cancelled("planning was cancelled before anything was answered");
  }
  const std::vector<Skipped>& why = answer.skipped_rules.empty() ? answer.skipped_candidates : answer.skipped_rules;
  return InvalidInput(StrCat("no rule and no candidate is left: ", why.front().reason));
}

// What keeps every schedule from being a candidate, and what to do about it.
std::string WhyNoCandidate(const Search& search, const Cluster& cluster) {
  if (const double bytes = search.least_unfit_bytes(); std::isfinite(bytes)) {
    return StrCat("No candidate that can be priced fits: the smallest ", TooLarge(bytes, cluster),
                  "; lower layer.batch or layer.sequenceLength, or raise layout.expertParallel or "
                  "layout.expertShardingParallel. Only the rules answered.");
  }
  if (search.stopped()) return "Cancelled before a candidate was priced. Only the rules answered.";
  const Skipped& first = search.skipped().front();  // No family is a candidate, so each is there.
  return StrCat("No candidate could be priced: ", first.what, ": ", first.reason, ". Only the rules answered.");
}

// Adds what the links say of the layer's collectives that were not measured.
void FillIn(const LinkModel& links, const Workload& workload, Profile& profile, PriceNotes& notes) {
  for (const CollectiveKey& key : LayerCollectives(workload.layer, workload.layout, profile.cluster.gpus_per_node)) {
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

  Search search(answer.workload, profile, options.cancelled);
  std::vector<Candidate> candidates = search.Run();
  answer.search = OutcomeOf(search);
  answer.skipped_candidates = search.skipped();
  if (candidates.empty() && !HasRule(answer.rules)) return NothingLeft(answer);

  SortBestFirst(candidates, search.fastest_s());
  PutSimplestOfTiesFirst(candidates);
  answer.explanation = candidates.empty() ? WhyNoCandidate(search, profile.cluster) : Explain(candidates);
  for (const Candidate& candidate : candidates) notes.Merge(candidate.prices.notes);
  answer.warnings = notes.Warnings();
  if (options.top > 0 && candidates.size() > static_cast<size_t>(options.top)) candidates.resize(options.top);
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

}  // namespace moeplan
