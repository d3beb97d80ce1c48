#include "planner/layout/price_layout.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "models/check.h"
#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "planner/lancet/stage_gains.h"
#include "planner/layout/cost_book.h"
#include "planner/layout/layout_rules.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/moe_plans.h"
#include "planner/layout/priced_layout.h"
#include "planner/wording.h"

namespace moeplan::planner {
namespace {

// What the sum of a step's parts misses beside their own errors: 90 % of steps lie within [1 / ratio, ratio] of it.
// Found on the A100 steps of docs/truth.md and held against others (docs/decisions/0029).
constexpr double kUnexplainedDense = 1.037, kUnexplainedWithExperts = 1.103;
// What it misses differently in two layouts of a model: 90 % of pairs of the same steps.
constexpr double kUnexplainedBetweenDense = 1.031, kUnexplainedBetweenWithExperts = 1.057;

// A warning of faster layers is for those that save at least a thousandth of the step.
constexpr double kWorthALine = 1.001;

// The profile on the cluster of the question's GPUs.
Profile OnItsGpus(const LayoutRequest& request, const Profile& profile) {
  Profile on_gpus = profile;
  on_gpus.cluster = ClusterOf(request, profile.cluster);
  return on_gpus;
}

CostBook BookFor(const LayoutRequest& request, const Profile& profile, const PriceRules& rules = {}) {
  return {profile, request.model.model_dim, request.bytes_per_element, rules, request.precision};
}

// Prices one question. Everything is borrowed: the profile is OnItsGpus, the book of it.
class StepSearch {
 public:
  StepSearch(const StepQuestion& question, const Profile& profile, CostBook& book, const StopSignals& stop)
      : question_(question), request_(question.request), profile_(profile), stop_(stop), book_(book) {}

  // Must be called before everything else.
  Status Price() {
    if (question_.lancet) RETURN_IF_ERROR(CheckLancet(question_));
    book_.LeanOn(std::nullopt);
    ASSIGN_OR_RETURN(const LayoutPoint point, PointOf(request_, profile_.cluster, question_.layout,
                                                      question_.micro_batch, question_.horizontal_contexts));
    ASSIGN_OR_RETURN(priced_, WithExperts(point));
    if (question_.lancet) {
      priced_.lancet = true;
      StatusOr<std::vector<StageGain>> gains = GainsOfStages(request_, point, profile_, lancet_notes_, stop_);
      if (!gains.ok()) {
        const Status& status = gains.status();
        return status.code() == StatusCode::kNotFound ? InvalidInput(status.message()) : status;
      }
      priced_.gains = *std::move(gains);
      without_s_ = PriceStep(request_, point, priced_.moe.time, book_).step_s;
    }
    book_.Forget();
    parts_ = PriceStepParts(request_, point, priced_.moe.time, book_, priced_.gains);
    // A plan may leave the given order as it is.
    if (question_.lancet && parts_.time.step_s > without_s_) {
      priced_.gains.clear();
      parts_ = PriceStepParts(request_, point, priced_.moe.time, book_);
    }
    double more_bytes = 0;
    for (const StageGain& gain : priced_.gains) more_bytes = std::max(more_bytes, gain.more_bytes);
    priced_.memory.running_bytes += std::round(more_bytes);  // Parts of outputs are no whole bytes.
    if (!book_.missing().empty()) {
      return InvalidInput(MissingReason({book_.missing().begin(), book_.missing().end()}, point.layout));
    }
    priced_.time = parts_.time;
    asked_ = book_.asked();
    return OkStatus();
  }

  double step_s() const { return priced_.time.step_s; }
  double missing_bytes() const { return std::max(0.0, priced_.memory.total_bytes() - DeviceBytes(profile_)); }
  bool has_experts() const { return request_.model.moe_layers() > 0; }
  const Knobs& moe_schedule() const { return priced_.moe.knobs; }
  const std::set<CostKey>& asked() const { return asked_; }
  // With one cost at an end of its interval, or with the MoE layers at theirs.
  double LeaningS(const CostKey& key, CostBook::End end) {
    book_.LeanOn(CostBook::Lean{key, end});
    const double leaning_s = StepS(priced_.moe.time);
    book_.LeanOn(std::nullopt);
    return leaning_s;
  }
  double LeaningMoeS(CostBook::End end) {
    return StepS(Scaled(priced_.moe, end == CostBook::End::kLow ? priced_.moe.low_s : priced_.moe.high_s));
  }
  bool RunsMoeLike(const StepSearch& other) const {
    return QuestionOf(request_, priced_.point) == QuestionOf(other.request_, other.priced_.point) &&
           priced_.moe.knobs == other.priced_.moe.knobs;
  }
  // Both price the same step.
  bool IsSameAs(const StepSearch& other) const {
    return priced_.point == other.priced_.point && request_.precision == other.request_.precision &&
           step_s() == other.step_s() && RunsMoeLike(other);
  }

  StepAnswer Answer() {
    StepAnswer answer;
    answer.parts = Named(parts_);
    answer.missing_bytes = missing_bytes();
    answer.overlap = parts_.overlap;
    if (priced_.lancet) {
      answer.lancet = {parts_.hidden.ranges_s, parts_.hidden.weight_gradients_s, without_s_};
    }
    const std::vector<std::string> of_graphs = lancet_notes_.Warnings();
    std::set<std::string> warnings(of_graphs.begin(), of_graphs.end());
    answer.layout = Describe(request_, profile_, priced_, has_experts() ? &plans_ : nullptr, book_, warnings);
    SetInterval(answer);
    WarnOfPeak(profile_, book_, warnings);
    if (!std::isfinite(DeviceBytes(profile_))) {
      warnings.insert("whether it fits was not checked: cluster.deviceMemoryBytes is not known");
    }
    answer.warnings.assign(warnings.begin(), warnings.end());
    return answer;
  }

 private:
  // Rows travel in one piece by a dispatcher, and beside another micro-batch.
  Status CheckSchedule() const {
    if (!question_.schedule || !HasOneSchedule(request_)) return OkStatus();
    const Family family = *question_.schedule;
    const int pieces = std::max(question_.chunks.value_or(1), question_.partition_degree.value_or(1));
    if ((family == Family::kBaseline || family == Family::kParmS1) && pieces == 1) return OkStatus();
    return InvalidInput(StrCat(
        "layout.schedule: found ", Name(family), " in ", pieces, " pieces, expected BASELINE or PARM_S1 in one with ",
        request_.overlaps_experts ? "overlapExpertParallel" : StrCat("dispatcher ", Name(request_.dispatcher))));
  }

  StatusOr<PricedLayout> WithExperts(const LayoutPoint& point) {
    if (!has_experts()) return WithoutExperts(request_, point);
    RETURN_IF_ERROR(CheckSchedule());
    const MoeQuestion question = QuestionOf(request_, point);
    const Workload workload = WorkloadOf(request_, question);
    book_.Forget();
    const Profile of_layer = book_.ForLayer(workload.layer, workload.layout, DispatchingOf(request_));
    const int unsaid = HasOneSchedule(request_) ? 1 : 0;  // Pieces, of which 0 are as many as are best.
    plans_ = question_.lancet     ? PlanMoeAsGraph(request_, question, of_layer, stop_)
             : question_.schedule ? PlanMoeAs({.family = *question_.schedule,
                                               .chunks = question_.chunks.value_or(unsaid),
                                               .partition_degree = question_.partition_degree.value_or(unsaid)},
                                              request_, question, of_layer, stop_)
                                  : PlanMoe(request_, question, of_layer, stop_);
    if (stop_.Requested()) return Cancelled("pricing a step was cancelled");
    if (plans_.plans.empty()) return InvalidInput(plans_.reason);
    plans_.extrapolated = book_.extrapolated();
    const std::vector<std::string> notes = book_.notes().Warnings();
    plans_.warnings.insert(plans_.warnings.end(), notes.begin(), notes.end());
    double least_bytes = std::numeric_limits<double>::infinity();
    if (auto fits = BestThatFits(request_, point, plans_, DeviceBytes(profile_), least_bytes)) return *std::move(fits);
    const MoePlan& smallest = plans_.plans.back();
    return PricedLayout{.point = point, .memory = RankMemoryOf(request_, point, smallest.memory), .moe = smallest};
  }

  double StepS(const MoeTime& moe) { return PriceStep(request_, priced_.point, moe, book_, priced_.gains).step_s; }

  void SetInterval(StepAnswer& answer) {
    std::map<CostKey, double> errors;
    for (const CostBook::End end : {CostBook::End::kLow, CostBook::End::kHigh}) {
      // Of the logarithm of the step.
      double squares = std::pow(std::log(has_experts() ? kUnexplainedWithExperts : kUnexplainedDense), 2);
      const auto add = [&](const CostKey* key, double changed_s) {
        const double square = std::pow(std::log(changed_s / step_s()), 2);
        squares += square;
        if (key != nullptr) errors[*key] += square / 2;
      };
      for (const CostKey& key : asked_) add(&key, LeaningS(key, end));
      const bool planned = has_experts() && !answer.layout.priced_from.empty();
      add(planned ? &answer.layout.priced_from.front() : nullptr, LeaningMoeS(end));
      const bool low = end == CostBook::End::kLow;
      (low ? answer.low_s : answer.high_s) = step_s() * std::exp(low ? -std::sqrt(squares) : std::sqrt(squares));
    }
    for (const auto& [key, square] : errors) {
      if (square > 0) answer.errors.push_back({key, square});
    }
    std::ranges::stable_sort(answer.errors, std::greater(), &StepError::square);
  }

  // The plan's times, stretched so that both passes take so long together.
  static MoeTime Scaled(const MoePlan& plan, double both_s) {
    const double known_s = plan.time.forward_s + plan.time.backward_s;
    const double factor = known_s > 0 ? both_s / known_s : 1;
    return {.forward_s = factor * plan.time.forward_s,
            .backward_s = factor * plan.time.backward_s,
            .backward_communication_s = factor * plan.time.backward_communication_s,
            .forward_exchange_s = factor * plan.time.forward_exchange_s,
            .backward_exchange_s = factor * plan.time.backward_exchange_s,
            .weight_gradient_s = factor * plan.time.weight_gradient_s,
            .forward_rest_s = factor * plan.time.forward_rest_s,
            .backward_rest_s = factor * plan.time.backward_rest_s,
            .forward_launches = plan.time.forward_launches,
            .backward_launches = plan.time.backward_launches};
  }

  static std::vector<StepPartTime> Named(const StepParts& step) {
    constexpr double kRounding = 1e-12;
    std::vector<StepPartTime> named;
    for (int i = 0; i < kStepParts; ++i) {
      const StepPart part = static_cast<StepPart>(i);
      const PartTime& time = step.parts[part];
      const double sum_s = time.forward_s + time.backward_s + std::abs(time.exposed_s);
      if (sum_s <= kRounding * step.time.step_s) continue;
      named.push_back({std::string(Name(part)), time.forward_s, time.backward_s, time.exposed_s});
    }
    return named;
  }

  const StepQuestion& question_;
  const LayoutRequest& request_;
  const Profile& profile_;
  const StopSignals& stop_;
  CostBook& book_;
  MoePlans plans_;
  PricedLayout priced_;
  StepParts parts_;
  std::set<CostKey> asked_;
  double without_s_ = 0;  // The step without Lancet's passes, where the question asks for them.
  PriceNotes lancet_notes_;
};

Status CheckQuestion(const StepQuestion& question, const Profile& profile) {
  RETURN_IF_ERROR(CheckPrecision(question.request, profile));
  return CheckLayoutRequest(question.request, profile.cluster);
}

// The squares of what a ratio of steps moves down and up by.
struct RatioSquares {
  double known = 0;  // The logarithm of the ratio itself.
  double down = 0, up = 0;

  // One cost at each of its ends.
  void Add(double low_ratio, double high_ratio) {
    double least = 0, most = 0;
    for (const double ratio : {low_ratio, high_ratio}) {
      const double moved = std::log(ratio) - known;
      least = std::min(least, moved), most = std::max(most, moved);
    }
    down += least * least, up += most * most;
  }
};

}  // namespace

StatusOr<StepAnswer> PriceLayout(const StepQuestion& question, const Profile& profile, const StopSignals& stop,
                                 const PriceRules& rules) {
  RETURN_IF_ERROR(CheckQuestion(question, profile));
  const Profile on_gpus = OnItsGpus(question.request, profile);
  CostBook book = BookFor(question.request, on_gpus, rules);
  StepSearch search(question, on_gpus, book, stop);
  RETURN_IF_ERROR(search.Price());
  return search.Answer();
}

std::string FasterLayers(const StepQuestion& question, const StepAnswer& answer, const Profile& profile,
                         const StopSignals& stop) {
  if (!question.lancet) return {};
  StepQuestion of_layers = question;
  of_layers.lancet = false;
  const Profile on_gpus = OnItsGpus(question.request, profile);
  CostBook book = BookFor(question.request, on_gpus);
  StepSearch search(of_layers, on_gpus, book, stop);
  const double lancet_s = answer.layout.step_time_s;
  if (!search.Price().ok() || search.missing_bytes() > 0 || search.step_s() * kWorthALine > lancet_s) return {};
  const Knobs& knobs = search.moe_schedule();
  const int pieces = std::max(knobs.chunks, knobs.partition_degree);
  return StrCat("layout.schedule: the step takes ", Duration(lancet_s), " under LANCET and ", Duration(search.step_s()),
                " with MoE layers as ", Name(knobs.family), pieces > 1 ? StrCat(" in ", pieces, " pieces") : "",
                ", which is what a layout without schedule has");
}

LayoutPricer::LayoutPricer(const LayoutRequest& request, const Profile& profile)
    : request_(request),
      measured_(profile),
      profile_(OnItsGpus(request, profile)),
      book_(std::make_unique<CostBook>(BookFor(request, profile_))) {}
LayoutPricer::~LayoutPricer() = default;

StatusOr<BareStep> LayoutPricer::Price(const StepQuestion& question, const StopSignals& stop) {
  MOEPLAN_CHECK(question.request.gpus == request_.gpus && question.request.precision == request_.precision &&
                question.request.model.model_dim == request_.model.model_dim);
  RETURN_IF_ERROR(CheckQuestion(question, measured_));
  StepSearch search(question, profile_, *book_, stop);
  RETURN_IF_ERROR(search.Price());
  return BareStep{search.step_s(), search.missing_bytes()};
}

StatusOr<StepRatio> CompareLayouts(const StepQuestion& one, const StepQuestion& other, const Profile& profile,
                                   const StopSignals& stop, const PriceRules& rules) {
  RETURN_IF_ERROR(CheckQuestion(one, profile));
  RETURN_IF_ERROR(CheckQuestion(other, profile));
  const Profile of_one = OnItsGpus(one.request, profile), of_other = OnItsGpus(other.request, profile);
  CostBook first_book = BookFor(one.request, of_one, rules), second_book = BookFor(other.request, of_other, rules);
  StepSearch first(one, of_one, first_book, stop), second(other, of_other, second_book, stop);
  RETURN_IF_ERROR(first.Price());
  RETURN_IF_ERROR(second.Price());
  StepRatio result;
  result.other = second.Answer();
  if (first.IsSameAs(second)) return result;
  const double ratio = second.step_s() / first.step_s();
  const double unexplained = std::log(first.has_experts() ? kUnexplainedBetweenWithExperts : kUnexplainedBetweenDense);
  RatioSquares squares = {.known = std::log(ratio), .down = unexplained * unexplained, .up = unexplained * unexplained};
  constexpr CostBook::End kLow = CostBook::End::kLow, kHigh = CostBook::End::kHigh;
  std::set<CostKey> asked = first.asked();
  asked.insert(second.asked().begin(), second.asked().end());
  for (const CostKey& key : asked) {
    const auto at = [&](CostBook::End end) { return second.LeaningS(key, end) / first.LeaningS(key, end); };
    squares.Add(at(kLow), at(kHigh));
  }
  if (first.has_experts() && first.RunsMoeLike(second)) {
    const auto at = [&](CostBook::End end) { return second.LeaningMoeS(end) / first.LeaningMoeS(end); };
    squares.Add(at(kLow), at(kHigh));
  } else if (first.has_experts()) {
    squares.Add(second.step_s() / first.LeaningMoeS(kLow), second.step_s() / first.LeaningMoeS(kHigh));
    squares.Add(second.LeaningMoeS(kLow) / first.step_s(), second.LeaningMoeS(kHigh) / first.step_s());
  }
  result.ratio = ratio;
  result.low = ratio * std::exp(-std::sqrt(squares.down));
  result.high = ratio * std::exp(std::sqrt(squares.up));
  return result;
}

}  // namespace moeplan::planner
